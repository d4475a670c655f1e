package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// user is a generated person.
type user struct {
	FirstName string `json:"firstName"`
	LastName  string `json:"lastName"`
	Birthday  string `json:"birthday"` // 1984-05-17
	Email     string `json:"email"`
	Password  string `json:"password"` // random, not a real password
}

// migrations create the tables, each once, in this order. Add new ones at the end.
var migrations = []string{
	`CREATE TABLE users (
		id INTEGER PRIMARY KEY,
		first_name VARCHAR(100) NOT NULL,
		last_name VARCHAR(100) NOT NULL,
		birthday DATE NOT NULL,
		email VARCHAR(200) NOT NULL,
		password VARCHAR(100) NOT NULL
	)`,
}

// insertAtOnce limits the rows of one statement.
const insertAtOnce = 100

// users is the table of users, in either kind of database.
type users struct {
	db   *sql.DB
	mark func(n int) string // the n-th placeholder
}

func openUsers(s settings) (*users, error) {
	driver, source, mark := "pgx", postgresURL(s), func(n int) string { return "$" + strconv.Itoa(n) }
	if s.Driver == "mariadb" {
		driver, source, mark = "mysql", mariadbSource(s), func(int) string { return "?" }
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return nil, fmt.Errorf("cannot use the database: %w", err)
	}
	db.SetMaxOpenConns(4)
	db.SetConnMaxLifetime(time.Minute)
	return &users{db: db, mark: mark}, nil
}

func postgresURL(s settings) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(s.Username, s.Password), Host: net.JoinHostPort(s.Host, s.Port), Path: s.Database}
	return u.String() + "?connect_timeout=5"
}

func mariadbSource(s settings) string {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User, c.Passwd = "tcp", net.JoinHostPort(s.Host, s.Port), s.Database, s.Username, s.Password
	c.Timeout = 5 * time.Second
	return c.FormatDSN()
}

func (u *users) close() { _ = u.db.Close() } // an error has no effect here

// migrate runs the missing migrations.
func (u *users) migrate(ctx context.Context) error {
	if _, err := u.db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY)`); err != nil {
		return fmt.Errorf("cannot make the table of migrations: %w", err)
	}
	var done int
	if err := u.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM migrations`).Scan(&done); err != nil {
		return fmt.Errorf("cannot read which migrations are done: %w", err)
	}
	for n := done; n < len(migrations); n++ {
		if err := u.migrateOnce(ctx, n); err != nil {
			return fmt.Errorf("cannot run migration %d: %w", n+1, err)
		}
	}
	return nil
}

func (u *users) migrateOnce(ctx context.Context, n int) error {
	return u.within(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, migrations[n]); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO migrations (number) VALUES (`+u.mark(1)+`)`, n+1)
		return err
	})
}

// add generates users and stores all of them, or none.
func (u *users) add(ctx context.Context, amount int) ([]user, error) {
	added := make([]user, amount)
	err := u.within(ctx, func(tx *sql.Tx) error {
		var last int
		if err := tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(id), 0) FROM users`).Scan(&last); err != nil {
			return err
		}
		for i := range added {
			added[i] = generateUser(last + i + 1)
		}
		next := last + 1
		for rows := range slices.Chunk(added, insertAtOnce) {
			if err := u.insert(ctx, tx, next, rows); err != nil {
				return err
			}
			next += len(rows)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot add users: %w", err)
	}
	return added, nil
}

func (u *users) insert(ctx context.Context, tx *sql.Tx, id int, rows []user) error {
	var values []string
	var args []any
	for i, r := range rows {
		var marks []string
		for _, v := range []any{id + i, r.FirstName, r.LastName, r.Birthday, r.Email, r.Password} {
			args = append(args, v)
			marks = append(marks, u.mark(len(args)))
		}
		values = append(values, "("+strings.Join(marks, ", ")+")")
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO users (id, first_name, last_name, birthday, email, password) VALUES `+strings.Join(values, ", "), args...)
	return err
}

// list returns all users, oldest first.
func (u *users) list(ctx context.Context) (all []user, err error) {
	// As text, because the two drivers return dates as different types.
	rows, err := u.db.QueryContext(ctx, `SELECT first_name, last_name, CAST(birthday AS CHAR(10)), email, password FROM users ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("cannot list users: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	all = []user{}
	for rows.Next() {
		var v user
		if err := rows.Scan(&v.FirstName, &v.LastName, &v.Birthday, &v.Email, &v.Password); err != nil {
			return nil, fmt.Errorf("cannot read a user: %w", err)
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

func (u *users) deleteAll(ctx context.Context) error {
	if _, err := u.db.ExecContext(ctx, `DELETE FROM users`); err != nil {
		return fmt.Errorf("cannot delete users: %w", err)
	}
	return nil
}

// within runs fn in a transaction.
func (u *users) within(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := u.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

var (
	firstNames = []string{"Alba", "Bela", "Cleo", "Dara", "Edda", "Finn", "Gero", "Hana", "Ilya", "Juno"}
	lastNames  = []string{"Ahorn", "Birke", "Distel", "Eiche", "Farn", "Ginster", "Hasel", "Iris", "Klee", "Linde"}
)

// generateUser generates the n-th user.
func generateUser(n int) user {
	pick := func(names []string) string { return names[rand.IntN(len(names))] }
	v := user{FirstName: pick(firstNames), LastName: pick(lastNames), Password: strconv.FormatUint(rand.Uint64(), 36)}
	v.Email = strings.ToLower(v.FirstName+"."+v.LastName) + strconv.Itoa(n) + "@example.com"
	v.Birthday = time.Date(1950+rand.IntN(60), time.Month(1+rand.IntN(12)), 1+rand.IntN(28), 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
	return v
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
