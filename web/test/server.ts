// Databases and servers of the tests: cleanupd serve, in processes of its own, on databases that no other test uses.
import { expect } from '@playwright/test'
import { type ChildProcess, spawn } from 'node:child_process'
import { createHash, randomUUID } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from 'pg'
import type { Policy, Run } from '../src/api'

function environment(name: string): string {
  const value = process.env[name]
  if (value === undefined) throw new Error(`there is no ${name}: make browser sets it`)
  return value
}

export type Role = 'viewer' | 'operator' | 'admin'
export const roles: Role[] = ['viewer', 'operator', 'admin']
export const token = (role: Role) => `secret-${role}`

/** A database of its own server's application. */
export class Database {
  private constructor(
    readonly name: string,
    readonly url: string,
    private readonly client: Client,
  ) {}

  /** The templates are made by TestConsole: campaign and empty, filled (Campaign's, with rows) and forms. */
  static async create(template: string): Promise<Database> {
    const name = 'console_' + randomUUID().replaceAll('-', '')
    await asSuperuser(`CREATE DATABASE ${name} TEMPLATE ${environment('TEMPLATE_' + template.toUpperCase())}
      OWNER ${environment('OWNER')}`)
    const url = environment('OWNER_URL').replace('DATABASE', name)
    const client = new Client({ connectionString: url })
    await client.connect()
    return new Database(name, url, client)
  }

  async do(sql: string, ...values: unknown[]): Promise<void> {
    await this.client.query(sql, values.length > 0 ? values : undefined)
  }

  /** The first column, as text. */
  async texts(sql: string, ...values: unknown[]): Promise<string[]> {
    const { rows } = await this.client.query({ text: sql, values, rowMode: 'array' })
    return rows.map(row => String(row[0]))
  }

  /** The first column of the first row. */
  async number(sql: string, ...values: unknown[]): Promise<number> {
    return Number((await this.texts(sql, ...values))[0])
  }

  /** Waits until a count is not 0. */
  async until(sql: string, ...values: unknown[]): Promise<void> {
    await expect.poll(() => this.number(sql, ...values), { message: sql }).toBeGreaterThan(0)
  }

  /** Executes statements in a transaction of another session, which lasts until release is called. */
  async hold(sql: string): Promise<() => Promise<void>> {
    const client = new Client({ connectionString: this.url })
    await client.connect()
    await client.query('BEGIN; ' + sql)
    return () => client.end()
  }

  async drop(): Promise<void> {
    await this.client.end()
    await asSuperuser(`DROP DATABASE ${this.name} WITH (FORCE)`)
  }
}

async function asSuperuser(sql: string): Promise<void> {
  const client = new Client({ connectionString: environment('SUPERUSER_URL') })
  await client.connect()
  await client.query(sql)
  await client.end()
}

type Answer = { status: number; text: string; json: any } // eslint-disable-line @typescript-eslint/no-explicit-any

/** A process of cleanupd serve. */
export class Server {
  private constructor(
    readonly db: Database,
    readonly url: string,
    private readonly process: ChildProcess,
    private readonly log: () => string,
    private readonly folder: string,
  ) {}

  /** With tokens callers sign in with token(role). address is HOST:PORT; by default a free port. */
  static async start(
    db: Database,
    {
      args = [],
      tokens = false,
      address = '127.0.0.1:0',
    }: { args?: string[]; tokens?: boolean; address?: string } = {},
  ): Promise<Server> {
    const folder = await mkdtemp(join(tmpdir(), 'console-'))
    const all = ['serve', '--database-url', db.url, '--grpc-listen', '127.0.0.1:0', '--http-listen', address, ...args]
    if (tokens) {
      const lines = roles.map(role => `${role} the-${role} ${createHash('sha256').update(token(role)).digest('hex')}\n`)
      await writeFile(join(folder, 'tokens'), lines.join(''), { mode: 0o600 })
      all.push('--token-file', join(folder, 'tokens'))
    }
    const child = spawn(environment('CLEANUPD'), all, { stdio: ['ignore', 'ignore', 'pipe'] })
    let log = ''
    const http = new Promise<string>((resolve, reject) => {
      child.stderr.on('data', data => {
        log += data
        const found = /msg=.* grpc=\S+ http=(\S+)/.exec(log)
        if (found) resolve(found[1]!)
      })
      child.on('exit', code => reject(new Error(`cleanupd serve ends with ${code}: ${log}`)))
    })
    return new Server(db, 'http://' + (await http), child, () => log, folder)
  }

  get address(): string {
    return new URL(this.url).host
  }

  /** Ends the process by a signal; SIGTERM must end it without an error. */
  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      const code = new Promise(resolve => this.process.on('exit', resolve))
      this.process.kill(signal)
      const ended = await code
      if (signal === 'SIGTERM') expect(ended, this.log()).toBe(0)
    }
    await rm(this.folder, { recursive: true, force: true })
  }

  async ask(method: string, path: string, body?: unknown, role?: Role): Promise<Answer> {
    const response = await fetch(this.url + path, {
      method,
      headers: {
        'Content-Type': 'application/json',
        ...(role && { Authorization: 'Bearer ' + token(role) }),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    })
    const text = await response.text()
    let json: Answer['json']
    try {
      json = JSON.parse(text)
    } catch {
      // a stream is several documents
    }
    return { status: response.status, text, json }
  }

  /** Calls an RPC that must succeed. */
  async call(method: string, path: string, body?: unknown): Promise<Answer['json']> {
    const answer = await this.ask(method, path, body)
    expect(answer.status, `${method} ${path}: ${answer.text}`).toBe(200)
    return answer.json
  }

  /** Executes a run, or another stream of its events, to its end, in whatever state that is. */
  async run(request: object, path = '/v1/runs'): Promise<Run> {
    const { text } = await this.ask('POST', path, request)
    const id = /"runId":\s*"([^"]+)"/.exec(text)?.[1]
    expect(id, text).toBeDefined()
    return (await this.call('GET', '/v1/runs/' + id)).run
  }

  async setPolicy(policy: Policy): Promise<Policy> {
    return (await this.call('PUT', '/v1/policies/' + policy.name, policy)).policy
  }
}
