"""Adds tasks to an event, and tells everybody who follows it: the tasks and what tells of them are committed together.

    pip install "psycopg[binary]" PyMySQL        # whichever your database needs; SQLite comes with Python
    python change.py "$DATABASE_URL" 42 "Buy bread" "Buy milk"

DATABASE_URL is postgres://..., mysql://... or the hub's own file, such as bongsu-data/bongsu.db.
"""

import json
import sqlite3
import sys
import uuid
from contextlib import closing
from urllib.parse import unquote, urlsplit


def connect(url):
    at = urlsplit(url)
    if at.scheme in ("postgres", "postgresql"):
        import psycopg

        return psycopg.connect(url)
    if at.scheme == "mysql":
        import pymysql

        who = {"user": unquote(at.username or ""), "password": unquote(at.password or "")}
        return pymysql.connect(host=at.hostname, port=at.port or 3306, database=at.path[1:], **who)
    return sqlite3.connect(url, timeout=5)


def add_task(db, event, title):
    """Part of the caller's transaction: the task and the row that tells of it."""
    if not title.strip():
        raise ValueError("a task needs a title")
    mark = "?" if isinstance(db, sqlite3.Connection) else "%s"
    task, cursor = str(uuid.uuid4()), db.cursor()
    cursor.execute(f"INSERT INTO tasks (id, title) VALUES ({mark}, {mark})", (task, title))
    cursor.execute(
        f"INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES ({mark}, {mark}, {mark})",
        ("task.added.v1", json.dumps({"task_id": task, "title": title}), event),
    )


def add_tasks(db, event, titles):
    """All of them, or none: a title that is missing takes back what was written before it, and nobody is told."""
    try:
        for title in titles:
            add_task(db, event, title)
        db.commit()
    except Exception:
        db.rollback()
        raise


if __name__ == "__main__":
    with closing(connect(sys.argv[1])) as db:
        db.cursor().execute("CREATE TABLE IF NOT EXISTS tasks (id VARCHAR(36) PRIMARY KEY, title VARCHAR(200) NOT NULL)")
        db.commit()
        add_tasks(db, sys.argv[2], sys.argv[3:])
