// What the tests do on a page of the console, and what every page has to stand up to.
import { readFile } from 'node:fs/promises'
import { type Browser, expect, type Locator, type Page, test as base } from '@playwright/test'
import axe from 'axe-core'
import { Database, type Role, Server, token } from './server'

type Options = { args?: string[]; tokens?: boolean; address?: string; database?: string | Database }

export const test = base.extend<{
  /** Starts a server, by default on an empty Campaign database. It ends with the test. */
  serve: (options?: Options) => Promise<Server>
  /** A database of AEM Forms, which is dropped after the test. */
  forms: Database
  /** Opens a page in a browser context of its own. */
  browse: (url: string, options?: { cut?: boolean }) => Promise<Console>
}>({
  serve: async ({}, use) => {
    const servers: Server[] = []
    const databases = new Set<Database>()
    await use(async ({ database = 'campaign', ...options } = {}) => {
      const db = typeof database === 'string' ? await Database.create(database) : database
      databases.add(db)
      const server = await Server.start(db, options)
      servers.push(server)
      return server
    })
    for (const server of servers) await server.stop()
    for (const db of databases) await db.drop()
  },
  forms: async ({}, use) => {
    const forms = await Database.create('forms')
    await use(forms)
    await forms.drop()
  },
  browse: async ({ browser }, use) => {
    const opened: Console[] = []
    await use(async (url, { cut = false } = {}) => {
      const p = await Console.at(browser, url, cut)
      opened.push(p)
      return p
    })
    for (const p of opened) await p.close()
  },
})

export class Console {
  private readonly complaints: string[] = []
  /** The origins from which the page may load something. */
  readonly origins = new Set<string>()

  private constructor(readonly page: Page) {}

  /** cut: the test cuts connections, which is no mistake of the page. */
  static async at(browser: Browser, url: string, cut: boolean): Promise<Console> {
    const page = await (await browser.newContext()).newPage()
    const p = new Console(page)
    p.origins.add(new URL(url).origin)
    page.on('pageerror', error => p.complaints.push(String(error)))
    page.on('console', message => {
      // the browser logs the status of calls that the server refuses, and of those that the page makes again
      const expected =
        /the server responded with a status of (4|503)/.test(message.text()) ||
        (cut && message.text().includes('net::ERR_'))
      if (message.type() === 'error' && !expected) p.complaints.push(message.text())
    })
    page.on('request', request => {
      const { origin, protocol } = new URL(request.url())
      if (protocol.startsWith('http') && !p.origins.has(origin)) p.complaints.push('a request to ' + origin)
    })
    await page.goto(url)
    return p
  }

  /** Says what the browser complained about. */
  async close(): Promise<void> {
    await this.page.context().close()
    expect(this.complaints, 'what the browser complains about').toEqual([])
  }

  async signIn(role: Role): Promise<void> {
    await this.fill('Token', token(role))
    await this.press('Sign in')
    await this.sees('Nothing is deleted until you say so')
  }

  get title(): Locator {
    return this.page.locator('h1')
  }

  get hash(): string {
    return new URL(this.page.url()).hash
  }

  /** The id of the run whose page it is. */
  get run(): string {
    return this.hash.replace('#/runs/', '')
  }

  async goTo(hash: string): Promise<void> {
    await this.page.evaluate(hash => void (location.hash = hash), hash)
  }

  async open(hash: string, title: string): Promise<void> {
    await this.goTo(hash)
    await expect(this.title).toHaveText(startsWith(title))
    await this.hasLoaded()
  }

  async hasLoaded(): Promise<void> {
    await expect(this.page.locator('[aria-busy=true]')).toHaveCount(0)
  }

  async sees(...texts: string[]): Promise<void> {
    for (const text of texts) await expect(this.page.locator('body')).toContainText(text, { useInnerText: true })
  }

  async seesNot(text: string | RegExp): Promise<void> {
    await expect(this.page.locator('body')).not.toContainText(text, { useInnerText: true })
  }

  /** Waits until the page of a run has received this number of events, each once. */
  async hasSeen(events: number): Promise<void> {
    await expect(this.page.locator('[data-seen]')).toHaveAttribute('data-seen', String(events))
  }

  /** Buttons, links and the like of this name, of the open dialog if there is one. */
  control(name: string): Locator {
    return this.page
      .locator('dialog[open], body:not(:has(dialog[open]))')
      .locator('button, a, summary, label.check')
      .filter({ hasText: exactly(name), visible: true })
  }

  async press(name: string): Promise<void> {
    await this.control(name).and(this.page.locator(':not([aria-disabled=true], :disabled)')).first().click()
  }

  /** The first field whose label begins with the text, or else the number whose label it is. */
  field(label: string): Locator {
    const labelled = this.page
      .locator('label.field')
      .filter({ has: this.page.locator('span', { hasText: startsWith(label) }) })
      .locator('input, select, textarea')
    return labelled.or(this.page.getByRole('spinbutton', { name: label, exact: true })).first()
  }

  async fill(label: string, value: string): Promise<void> {
    const field = this.field(label)
    if ((await field.evaluate(e => e.tagName)) === 'SELECT') return void (await field.selectOption(value))
    await field.fill(value)
    await field.dispatchEvent('change')
  }

  /** What the server says is wrong with a field, which it marks. */
  async isWrong(label: string, why: string | RegExp = /./): Promise<void> {
    const field = this.field(label)
    await expect(field).toHaveAttribute('aria-invalid', 'true')
    await expect(field.locator('xpath=ancestor::label').getByRole('alert')).toHaveText(why)
  }

  /** Types a number or a text into the question before an action, which other ones do not let happen. */
  async confirm(action: string, typed: string, label = `Type ${typed} to confirm`): Promise<void> {
    await this.press(action)
    const button = this.page.locator('dialog button.primary')
    for (const wrong of ['', typed + '0']) {
      await this.fill(label, wrong)
      await expect(button, `after ${JSON.stringify(wrong)} is typed`).toBeDisabled()
    }
    await this.fill(label, typed)
    await expect(button).toBeEnabled()
    await this.press(action)
  }

  async openDetails(): Promise<void> {
    await this.page.evaluate(() => document.querySelectorAll('details').forEach(e => (e.open = true)))
  }

  /** Checks the page in light and in dark colours. */
  async isAccessible(what: string): Promise<void> {
    for (const colorScheme of ['dark', 'light'] as const) {
      await this.page.emulateMedia({ colorScheme })
      await this.passes(`${what}, ${colorScheme}`)
    }
  }

  async passes(what: string): Promise<void> {
    if (await this.page.evaluate(() => !('axe' in window))) await this.page.evaluate(axe.source)
    const found = await this.page.evaluate(async () => {
      const { violations } = await (window as unknown as { axe: typeof axe }).axe.run({ resultTypes: ['violations'] })
      return violations.map(v => [v.id, ...v.nodes.map(n => `${n.html} ${n.failureSummary}`)].join('\n'))
    })
    expect(found, what).toEqual([])
  }

  async key(...keys: string[]): Promise<void> {
    for (const key of keys) await this.page.keyboard.press(key)
  }

  get focused(): Locator {
    return this.page.locator('*:focus')
  }

  async titleHasFocus(): Promise<void> {
    await expect(this.title).toBeFocused()
  }

  /** Goes from control to control until one with that selector and name, as a screen reader says it, has the focus. */
  async reach(selector: string, name: string): Promise<void> {
    for (let i = 0; i < 200; i++) {
      await this.key('Tab')
      const found = await this.page.evaluate(
        ([selector, name]) => {
          const e = document.activeElement as HTMLInputElement
          const label = e.labels?.[0]
          const said =
            e.getAttribute('aria-label') ??
            document.getElementById(e.getAttribute('aria-labelledby') ?? '')?.textContent ??
            label?.querySelector('span')?.textContent ??
            label?.textContent ??
            e.textContent
          return e.matches(selector!) && said?.trim() === name
        },
        [selector, name],
      )
      if (found) return
    }
    throw new Error(`the keyboard does not reach ${selector} ${name}`)
  }

  /** Each control of the page is reached, in the order of the page, and shows that it has the focus. */
  async canBeWalked(what: string): Promise<void> {
    const last = await this.page.evaluate(() => {
      const all = 'a[href], button, input, select, textarea, summary, [tabindex="0"]'
      const stops = [...document.querySelectorAll<HTMLElement>(all)].filter(
        e => e.checkVisibility() && !e.matches(':disabled'),
      )
      ;(document.activeElement as HTMLElement).blur()
      stops[0]!.focus()
      Object.assign(window, { stops })
      return stops.length - 1
    })
    for (let at = 0; ;) {
      await this.key('Tab')
      const { next, shown, html } = await this.page.evaluate(() => {
        const e = document.activeElement!
        const { outlineStyle, outlineWidth } = getComputedStyle(e)
        return {
          next: (window as unknown as { stops: Element[] }).stops.indexOf(e),
          shown: outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2,
          html: e.outerHTML.slice(0, 200),
        }
      })
      if (next === at) continue // within a field of a date
      if (next <= 0) {
        expect(at, `${what}: the last control before ${html}`).toBe(last)
        return
      }
      expect(shown, `${what}: it is seen that this has the focus: ${html}`).toBe(true)
      expect(next, `${what}: the control after ${at}: ${html}`).toBe(at + 1)
      at = next
    }
  }

  /** Nothing in elements of the selector is beyond the right edge of the window. */
  async fits(selector: string, what: string): Promise<void> {
    const beyond = await this.page.evaluate(
      ({ selector, width }) =>
        [...document.querySelectorAll<HTMLElement>(selector)]
          .filter(e => e.getBoundingClientRect().right > width)
          .map(e => e.innerText),
      { selector, width: this.page.viewportSize()!.width },
    )
    expect(beyond, what + ': beyond the right edge').toEqual([])
  }
}

const escape = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
const startsWith = (text: string) => new RegExp('^\\s*' + escape(text))
const exactly = (text: string) => new RegExp(`^\\s*${escape(text)}\\s*$`)

/** The pages, and who is offered them. */
export const pages: { hash: string; title: string; role: Role }[] = [
  { hash: '#/', title: 'Overview', role: 'viewer' },
  { hash: '#/runs', title: 'History', role: 'viewer' },
  { hash: '#/preview', title: 'Preview', role: 'viewer' },
  { hash: '#/retention', title: 'Retention', role: 'viewer' },
  { hash: '#/policies', title: 'Policies', role: 'viewer' },
  { hash: '#/schedule', title: 'Schedule', role: 'viewer' },
  { hash: '#/guards', title: 'Guards', role: 'admin' },
  { hash: '#/holds', title: 'Holds', role: 'admin' },
  { hash: '#/trash', title: 'Trash', role: 'viewer' },
  { hash: '#/tables', title: 'Tables', role: 'viewer' },
  { hash: '#/forecast', title: 'Forecast', role: 'viewer' },
  { hash: '#/explain', title: 'Explain', role: 'viewer' },
  { hash: '#/audit', title: 'Audit', role: 'admin' },
  { hash: '#/about', title: 'About', role: 'viewer' },
]

/** A run of sessions has 20,000 rows to delete, which takes minutes until release is called. */
export async function slowSessions(db: Database): Promise<() => Promise<void>> {
  await db.do(`CREATE TABLE released (); CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN IF NOT EXISTS (SELECT FROM released) THEN PERFORM pg_sleep(0.01); END IF; RETURN OLD; END';
    CREATE TRIGGER wait BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION wait();
    INSERT INTO XtkSessionInfo (sKey, tsExpiration)
      SELECT i::text, now() - '1 day'::interval FROM generate_series(1, 20000) i`)
  return () => db.do('INSERT INTO released DEFAULT VALUES')
}

/** 1,200 obsolete sessions: the second half waits for release, and then takes a millisecond a row. */
export async function sessionsInHalves(db: Database): Promise<() => Promise<void>> {
  await db.do(`ALTER TABLE XtkSessionInfo ADD filler text; -- four rows a block
    ALTER TABLE XtkSessionInfo ALTER filler SET STORAGE PLAIN;
    INSERT INTO XtkSessionInfo SELECT i::text, 'x', '2000-01-01', repeat('y', 1900) FROM generate_series(1, 1200) i;
    CREATE TABLE released ();
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
      WHILE OLD.sKey::int > 600 AND NOT EXISTS (SELECT FROM released) LOOP PERFORM pg_sleep(0.01); END LOOP;
      PERFORM pg_sleep(0.001); RETURN OLD; END';
    CREATE TRIGGER slow BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION slow()`)
  return () => db.do('INSERT INTO released DEFAULT VALUES')
}

export async function shop(): Promise<Database> {
  const db = await Database.create('empty')
  await db.do(await readFile(new URL('../../service/testdata/shop.sql', import.meta.url), 'utf8'))
  return db
}

/** Deletes closed orders of the shop after two years. */
export const oldOrders = {
  name: 'old-orders',
  table: 'shop.order_line',
  enabled: true,
  olderThan: { column: 'placed', days: 730 },
  filters: [{ column: 'status', op: 'FILTER_OP_EQUAL' as const, values: ['closed'] }],
}
