import java.util.ArrayList;
import java.util.List;

/** Stores one megabyte after the other until the heap is full. */
public class App {
    public static void main(String[] args) {
        List<byte[]> stored = new ArrayList<>();
        while (true) {
            stored.add(new byte[1 << 20]);
        }
    }
}
