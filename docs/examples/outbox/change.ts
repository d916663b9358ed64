// Adds tasks to an event, and tells everybody who follows it: the tasks and what tells of them are committed together.
//
//   npm install pg mysql2 && npm install --save-dev typescript @types/node @types/pg
//   npx tsc --strict --target es2022 --module nodenext --types node change.ts
//   node change.js "$DATABASE_URL" 42 "Buy bread" "Buy milk"
//
// DATABASE_URL is postgres://... or mysql://...

import { randomUUID } from "node:crypto";
import mysql from "mysql2/promise";
import pg from "pg";

interface Database {
  run(sql: string, values?: string[]): Promise<unknown>;
  end(): Promise<void>;
}

async function connect(url: string): Promise<Database> {
  if (url.startsWith("mysql:")) {
    const db = await mysql.createConnection(url);
    return { run: (sql, values) => db.query(sql, values), end: () => db.end() };
  }
  const db = new pg.Client({ connectionString: url });
  await db.connect();
  // PostgreSQL numbers its placeholders: $1, $2.
  const numbered = (sql: string, n = 0) => sql.replace(/\?/g, () => `$${++n}`);
  return { run: (sql, values) => db.query(numbered(sql), values), end: () => db.end() };
}

/** Part of the caller's transaction: the task and the row that tells of it. */
async function addTask(db: Database, event: string, title: string): Promise<void> {
  if (!title.trim()) throw new Error("a task needs a title");
  const task = randomUUID();
  await db.run("INSERT INTO tasks (id, title) VALUES (?, ?)", [task, title]);
  await db.run("INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES (?, ?, ?)", [
    "task.added.v1", JSON.stringify({ task_id: task, title }), event,
  ]);
}

/** All of them, or none: a title that is missing takes back what was written before it, and nobody is told. */
async function addTasks(db: Database, event: string, titles: string[]): Promise<void> {
  await db.run("BEGIN");
  try {
    for (const title of titles) await addTask(db, event, title);
    await db.run("COMMIT");
  } catch (error) {
    await db.run("ROLLBACK");
    throw error;
  }
}

async function main([url, event, ...titles]: string[]): Promise<void> {
  const db = await connect(url);
  try {
    await db.run("CREATE TABLE IF NOT EXISTS tasks (id VARCHAR(36) PRIMARY KEY, title VARCHAR(200) NOT NULL)");
    await addTasks(db, event, titles);
  } finally {
    await db.end();
  }
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
