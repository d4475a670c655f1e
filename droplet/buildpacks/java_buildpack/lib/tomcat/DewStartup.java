import org.apache.catalina.Container;
import org.apache.catalina.Lifecycle;
import org.apache.catalina.LifecycleEvent;
import org.apache.catalina.LifecycleListener;

/** DewStartup ends Tomcat if the app cannot start, so that the instance crashes instead of answering 404. */
public class DewStartup implements LifecycleListener {
	@Override
	public void lifecycleEvent(LifecycleEvent event) {
		if (!Lifecycle.AFTER_START_EVENT.equals(event.getType())) {
			return;
		}
		Container[] apps = ((Container) event.getLifecycle()).findChildren();
		boolean running = apps.length > 0;
		for (Container app : apps) {
			running &= app.getState().isAvailable();
		}
		if (!running) {
			System.err.println("The web app could not start. The lines above say why.");
			System.err.flush();
			Runtime.getRuntime().halt(1);
		}
	}
}
