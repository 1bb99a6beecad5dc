// Runs are previewed, started, followed, slowed down, paused and cancelled.
import { expect } from '@playwright/test'
import { createServer, connect, type AddressInfo, type Socket } from 'node:net'
import { join } from 'node:path'
import { type Console, sessionsInHalves, slowSessions, test } from './console'

const listedLines = (p: Console) => p.page.locator('.log .line')
const states = (p: Console, pattern: RegExp) => p.page.locator('td .badge').filter({ hasText: pattern })
const pace = (p: Console) => p.page.locator('.choice [aria-pressed=true]')

async function startNow(p: Console): Promise<void> {
  await p.open('#/preview', 'Preview')
  await p.press('Run without a preview …')
  await p.press('Run now')
  await expect(p.title).toContainText('Run ·')
}

test('a plan that a guard refuses is run after its number is typed', async ({ serve, browse }) => {
  const s = await serve()
  await s.db.do(`INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified)
      SELECT i, 0, 0, now() - '1 year'::interval FROM generate_series(1, 1000) i;
    INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, now() - '1 day'::interval
      FROM generate_series(1, 50) i`)
  const p = await browse(s.url)
  await p.open('#/guards', 'Guards')
  await p.fill('Minimum number of rows', '10')
  await p.press('Save')
  await expect.poll(async () => (await s.call('GET', '/v1/guards')).guards.minRows).toBe('10')
  expect((await s.run({})).state, 'a run that a guard refuses').toBe('RUN_STATE_FAILED')
  await p.page.reload()
  await p.sees('It would delete or update too much of a large table')

  await p.open('#/preview', 'Preview')
  await p.press('Start the preview')
  await p.sees('What a run would delete', '1,000 rows to delete', '1 guard refuses it', 'Guards refuse the tasks')
  await expect(p.page.locator('details.task:not([open])'), 'tasks, folded').toHaveCount(2)
  const preview = p.hash
  await p.press('Run exactly this')
  await p.sees(s.db.name + ' · ', 'more than 50% of a large table: 1,000 of about 1,000 rows')
  const run = p.page.locator('dialog button.primary')
  await expect(run).toBeDisabled()
  await p.fill('Type 1,000 to accept', '999')
  await expect(run).toBeDisabled()
  await p.fill('Type 1,000 to accept', '1,000')
  await p.press('Run exactly this')
  await p.sees('from this saved plan', 'succeeded ended', '1,050 rows deleted', 'Space', 'Rows per second')
  await p.sees('Nothing to delete: ')
  await expect(p.page.locator('section [aria-label=Tasks] tbody tr'), 'the tasks that deleted rows').toHaveCount(2)
  const left = `SELECT (SELECT count(*) FROM NmsVisitor WHERE iVisitorId > 0) + (SELECT count(*) FROM XtkSessionInfo)`
  expect(await s.db.number(left), 'rows that are left').toBe(0)
  await p.hasSeen(await s.db.number('SELECT count(*) FROM cleanupd.event WHERE run_id = $1', p.run))
  await p.open(preview, 'Dry run')
  await p.sees('This preview was run.')
  await expect(p.control('Run exactly this')).toHaveCount(0)
  await p.open('#/', 'Overview')
  await p.sees('1,050', 'visitors', 'No runs are scheduled.')
})

test('the overview judges runs of the whole pipeline, and shows each of their warnings', async ({ serve, browse }) => {
  const s = await serve()
  await s.db.do("INSERT INTO XtkWorkflow (iWorkflowId, sInternalName, iState) VALUES (7, 'cleanup', 11)")
  await s.run({ tasks: ['sessions'] })
  const p = await browse(s.url)
  await p.sees('No run of all tasks has ended yet.', "the application's own cleanup workflow is also running")
  await expect(p.page.locator('.chart text'), '5 labels of days, and 3 of rows').toHaveCount(8)
  await s.db.do(`UPDATE XtkWorkflow SET iState = 20;
    INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('a', '2000-01-01');
    CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER keep BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION keep()`)
  await s.run({})
  await s.run({ tasks: ['visitors'] })
  await p.page.reload()
  await p.sees('The last run of all tasks retained 1 obsolete row.', ' more')
  await p.openDetails()
  await p.sees('xtksessioninfo: 1 obsolete row is retained')
  await p.seesNot('own workflow') // a warning of an earlier run
})

test('two tabs follow a run to its end, although their connections are cut, and another run is cancelled', async ({
  serve,
  browse,
}) => {
  const s = await serve()
  const sockets = new Set<Socket>()
  const proxy = createServer(client => {
    const server = connect(Number(new URL(s.url).port), '127.0.0.1')
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      sockets.add(one)
      one.pipe(other)
      one.on('error', () => other.destroy())
      one.on('close', () => {
        sockets.delete(one)
        other.destroy()
      })
    }
  })
  await new Promise<void>(resolve => proxy.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`
  const release = await slowSessions(s.db)
  const p = await browse(url, { cut: true })
  await startNow(p)
  await p.sees('running since', 'rows so far', 'sessions (task ')
  const q = await browse(p.page.url(), { cut: true })
  await q.sees('running since')
  const again = p.page.waitForRequest(/\/events/)
  for (const socket of sockets) socket.destroy()
  await again
  await release()
  for (const tab of [p, q]) {
    await tab.sees('succeeded ended', '20,000 rows deleted')
    await tab.hasSeen(await s.db.number('SELECT count(*) FROM cleanupd.event WHERE run_id = $1', p.run))
  }

  await s.db.do('DROP TABLE released; DROP FUNCTION wait() CASCADE')
  await slowSessions(s.db)
  await startNow(p)
  await p.press('Cancel the run')
  await p.sees('cannot be restored')
  await p.press('Cancel the run')
  await p.sees('cancelled ended')
  for (const socket of sockets) socket.destroy()
  proxy.close()
})

test('viewers may cancel dry runs that they have started, but no other run', async ({ serve, browse }) => {
  const s = await serve({ tokens: true })
  // a dry run waits seconds for each
  const release = await s.db.hold(
    'LOCK TABLE XtkSessionInfo, NmsMirrorPageInfo, NmsVisitor, NmsAddress, XtkAudit, XtkWorkflowLogin',
  )
  const [viewer, operator] = [await browse(s.url), await browse(s.url)]
  await viewer.signIn('viewer')
  await operator.signIn('operator')
  await operator.open('#/preview', 'Preview')
  await operator.press('Start the preview')
  await operator.sees('running since')
  await viewer.open(operator.hash, 'Dry run ·')
  await viewer.sees('running since')
  await expect(viewer.control('Cancel the run')).toHaveCount(0)
  await viewer.open('#/preview', 'Preview')
  await viewer.press('Start the preview')
  for (const p of [operator, viewer]) {
    await p.press('Cancel the run')
    await p.sees('cannot be restored')
    await p.press('Cancel the run')
    await p.sees('cancelled ended')
  }
  await release()
})

test('two tabs follow a run whose replica is killed, and show each event once', async ({ serve, browse }) => {
  const s = await serve()
  const release = await sessionsInHalves(s.db)
  const p = await browse(s.url, { cut: true })
  await startNow(p)
  await p.sees('running since')
  const q = await browse(p.page.url(), { cut: true })
  await q.sees('running since')
  await s.db.until('SELECT COALESCE(sum(rows_deleted), 0) FROM cleanupd.task')
  await s.stop('SIGKILL')
  await serve({ database: s.db, address: s.address }) // at the same address
  await release()
  expect(await s.db.number('SELECT count(*) FROM XtkSessionInfo'), 'rows that are left').toBeGreaterThan(0)
  for (const tab of [p, q]) {
    await tab.sees('succeeded ended', '1,200 rows')
    await tab.hasSeen(await s.db.number('SELECT count(*) FROM cleanupd.event'))
    await expect(listedLines(tab)).toHaveCount(
      await s.db.number("SELECT count(*) FROM cleanupd.event WHERE body ->> 'Kind' = 'log'"),
    )
  }
  const replicas = 'SELECT count(DISTINCT generation) FROM cleanupd.event'
  expect(await s.db.number(replicas), 'replicas that had the run').toBe(2)
})

test('a run whose replica is gone is interrupted until another one takes it over', async ({ serve, browse }) => {
  const first = await serve()
  const release = await sessionsInHalves(first.db)
  const id = JSON.parse((await first.ask('POST', '/v1/runs', { detach: true })).text).result.event.runId
  await first.db.until("SELECT count(*) FROM cleanupd.task WHERE name = 'sessions' AND rows_deleted > 0")
  // this one shows runs, but takes none over
  const other = await serve({ database: first.db, args: ['--instance', 'other'] })
  const p = await browse(`${other.url}/#/runs/${id}`)
  await p.sees('running since', 'sessions (task ')
  await first.stop('SIGKILL')
  const interrupted = async () => {
    await p.sees('interrupted since', 'A server resumes the run after its last committed batch.')
    await expect(states(p, /^(running|int)/)).toHaveText(['interrupted'])
  }
  await interrupted()
  await p.isAccessible('an interrupted run')
  await p.page.reload()
  await interrupted()
  await serve({ database: first.db })
  await p.sees('running since')
  await release()
  await p.sees('succeeded ended', '1,200 rows deleted')
})

test('an operator changes the pace of a run, and pauses and resumes it, which a viewer sees', async ({
  serve,
  browse,
}) => {
  const s = await serve({ tokens: true })
  const release = await slowSessions(s.db)
  const [p, viewer] = [await browse(s.url), await browse(s.url)]
  await p.signIn('operator')
  await viewer.signIn('viewer')
  await p.open('#/preview', 'Preview')
  await p.press('Run without a preview …')
  await p.fill('Pace', 'PACE_FAST')
  await p.passes('the start of a run')
  await p.press('Run now')
  await p.sees('running since', 'sessions (task ', 'pace: Fast', 'All workers run all the time')
  await expect(pace(p)).toHaveText('Fast')
  const run = p.hash
  await viewer.open(run, 'Run ·')
  await viewer.sees('running since', 'pace: Fast')

  await p.press('Gentle')
  await s.db.until("SELECT count(*) FROM cleanupd.run WHERE pace = 'GENTLE'")
  await expect(pace(p)).toHaveText('Gentle')
  await p.sees('token:the-operator changed the pace to GENTLE')

  await p.title.focus()
  await p.reach('button', 'Pause')
  await p.key('Enter')
  await p.sees('paused by token:the-operator since')
  await expect(p.focused).toHaveText('Resume')
  await expect(p.page.getByRole('status'), 'a screen reader says it').toContainText('paused by token:the-operator')
  await expect(states(p, /paused|running/), 'of the tasks that have begun').toHaveText(['paused'])
  await p.isAccessible('a paused run')
  await p.canBeWalked('a paused run')
  await viewer.sees('paused by token:the-operator since')
  for (const name of ['Pause', 'Resume', 'Gentle', 'Balanced', 'Fast', 'Cancel the run'])
    await expect(viewer.page.getByRole('button', { name, exact: true }), 'what a viewer is offered').toHaveCount(0)
  await viewer.open('#/', 'Overview')
  await viewer.sees('A run is paused by token:the-operator.', 'Active run')
  await viewer.isAccessible('the overview during a pause')
  await viewer.open('#/runs', 'History')
  for (const [state, n] of [
    ['RUN_STATE_RUNNING', 0],
    ['RUN_STATE_PAUSED', 1],
  ] as const) {
    await viewer.fill('State', state)
    await expect(viewer.page.locator('tbody tr'), state).toHaveCount(n)
  }
  await viewer.open(run, 'Run ·')

  await p.press('Balanced')
  await expect(pace(p)).toHaveText('Balanced')
  await p.sees('paused by token:the-operator since')
  await p.press('Resume')
  await p.sees('running since')
  await viewer.sees('running since', 'pace: Balanced')
  await release()
  for (const tab of [p, viewer])
    await tab.sees('succeeded ended', '20,000 rows deleted', 'resumed by token:the-operator')
  for (const name of ['Pause', 'Gentle'])
    await expect(p.page.getByRole('button', { name, exact: true }), 'of a run that has ended').toHaveCount(0)
})

test('a page of a run shows refusals, and sends nothing twice', async ({ serve, browse }) => {
  const s = await serve()
  const { id } = await s.run({ tasks: ['sessions'] })
  const why = 'commits take 9.1 ms, 4.0 ms without batches; batches of 12.5 ms, then pauses 3.2 times as long'
  // The run is active, and the replica that has it does not answer.
  const setRun = (changes: string) => s.db.do(`UPDATE cleanupd.run SET ${changes} WHERE id = $1`, id)
  await s.db.do(
    `DELETE FROM cleanupd.event WHERE run_id = $1 AND body->>'Kind' IN ('task_finished', 'run_finished')`,
    id,
  )
  await s.db.do(
    `UPDATE cleanupd.task SET state = 'RUNNING', end_time = NULL WHERE run_id = $1 AND name = 'sessions'`,
    id,
  )
  await setRun(`state = 'RUNNING', end_time = NULL, replica = 'other', pace = 'GENTLE',
    lease_until = now() + interval '1 day',
    last_sequence = (SELECT max(sequence) FROM cleanupd.event WHERE run_id = $1)`)
  const p = await browse(s.url)
  await p.open('#/runs/' + id, 'Run ·')
  await p.sees('running since')
  await s.db.do(
    `WITH r AS (UPDATE cleanupd.run SET last_sequence = last_sequence + 1 WHERE id = $1 RETURNING *)
    INSERT INTO cleanupd.event (run_id, sequence, generation, body)
      SELECT r.id, r.last_sequence, e.generation, $2
      FROM r, (SELECT max(generation) AS generation FROM cleanupd.event WHERE run_id = $1) e`,
    id,
    { Kind: 'task_progress', Task: 'sessions', Progress: { Pace: 'GENTLE', Throttle: 'gentle pace: ' + why } },
  )
  await p.sees('pace: Gentle', 'waiting: gentle pace ' + why)
  await p.page.setViewportSize({ width: 360, height: 800 })
  await p.fits('td, .pace *', 'a gentle run')
  await p.isAccessible('a gentle run')
  let sent = 0
  p.page.on('request', request => {
    if (/:(pause|pace|resume)$/.test(request.url())) sent++
  })
  await p.press('Pause')
  // The server waits for the replica for seconds.
  const buttons = p.page.locator('.choice button')
  for (const button of await buttons.all()) await expect(button).toHaveAttribute('aria-disabled', 'true')
  await p.page
    .locator('header button, .choice button')
    .filter({ hasNotText: 'Cancel the run' })
    .evaluateAll(all => all.forEach(button => (button as HTMLElement).click()))
  await expect(buttons.first()).toHaveAttribute('aria-disabled', 'false')
  expect(sent, 'requests').toBe(1)
  await p.sees('paused by 127.0.0.1')
  await p.seesNot('waiting:')
  await setRun("paused_by = 'schedule'")
  await p.page.reload()
  await p.sees('paused outside of the windows of the schedule since')
  await p.press('Pause') // so that no window ends the pause
  await p.sees('paused by 127.0.0.1')
  await setRun("state = 'CANCELLED', cause = 'CANCELLED', end_time = now()")
  await p.press('Fast')
  await expect(p.page.getByRole('alert')).toContainText('the run has ended')
  await expect(pace(p)).toHaveText('Gentle')
})

test('pages stay small, however many runs there are, and however many events a run has', async ({ serve, browse }) => {
  const s = await serve()
  // the log says that no task covers it
  await s.db.do('CREATE TABLE nmstrackinglogfar1 (LIKE nmstrackinglogrcp)')
  const { id } = await s.run({})
  await s.db.do(`INSERT INTO cleanupd.run
      SELECT (jsonb_populate_record(r, jsonb_build_object('id', gen_random_uuid(),
        'create_time', r.create_time - i * interval '1 hour'))).* FROM cleanupd.run r, generate_series(1, 999) i;
    INSERT INTO cleanupd.task SELECT (jsonb_populate_record(t, jsonb_build_object('run_id', r.id))).*
      FROM cleanupd.task t, cleanupd.run r WHERE t.run_id = '${id}' AND r.id <> t.run_id`)
  const p = await browse(s.url)
  const elements = () => p.page.locator('*').count()
  let asked = 0
  p.page.on('request', request => {
    if (request.url().includes('/v1/')) asked++
  })
  await p.open('#/runs', 'History')
  const runs = p.page.locator('tbody tr')
  await expect(runs).toHaveCount(50)
  // it has asked for the tasks, too
  await expect.poll(() => p.page.locator('option').count()).toBeGreaterThan(30)
  const before = await elements()
  asked = 0
  await p.press('Show more')
  await expect(runs).toHaveCount(100)
  expect(asked, 'requests for 50 more runs').toBe(1)
  expect(await elements(), 'elements with 50 more runs').toBeLessThanOrEqual(2 * before)
  await p.open('#/', 'Overview')
  await expect.poll(() => p.page.locator('.chart a').count(), 'days').toBeGreaterThanOrEqual(30)
  expect(await elements(), 'elements of the overview').toBeLessThan(1000)

  // The run is active without a lease, and has had 90,000 events: every third one a line of the log.
  const write = (from: number, to: number) =>
    s.db.do(`INSERT INTO cleanupd.event (run_id, sequence, generation, body)
        SELECT '${id}', i, e.generation, CASE
          WHEN i % 3 = 0 THEN e.body || jsonb_build_object('Message', 'line ' || i)
          ELSE '{"Kind": "task_progress", "Task": "deliveries", "Progress": {"RowsDeleted": 1, "RowsPerSecond": 1000}}'
          END
        FROM generate_series(${from}, ${to}) i, (SELECT * FROM cleanupd.event WHERE run_id = '${id}'
          AND body ->> 'Kind' = 'log' ORDER BY sequence LIMIT 1) e;
      UPDATE cleanupd.run SET last_sequence = ${to} WHERE id = '${id}'`)
  await s.db.do(`WITH e AS (DELETE FROM cleanupd.event WHERE run_id = '${id}' AND body ->> 'Kind' = 'run_finished'
      RETURNING *)
      INSERT INTO cleanupd.event SELECT run_id, 100000, time, generation, body FROM e;
    UPDATE cleanupd.run SET state = 'RUNNING', end_time = NULL, lease_until = now() + interval '1 day'
      WHERE id = '${id}'`)
  const last = 'SELECT max(sequence) FROM cleanupd.event WHERE sequence < 100000 AND run_id = $1'
  await write((await s.db.number(last, id)) + 1, 90_000)
  await p.open('#/runs/' + id, 'Run')
  await p.hasSeen(500)
  const lines = listedLines(p)
  expect(await lines.count(), 'lines at first').toBeLessThanOrEqual(500)
  const session = await p.page.context().newCDPSession(p.page)
  const heap = async () => {
    await session.send('HeapProfiler.collectGarbage')
    return (await session.send('Runtime.getHeapUsage')).usedSize
  }
  const [held, few] = [await heap(), await elements()]
  asked = 0
  await write(90_001, 99_999)
  await s.db.do(
    "UPDATE cleanupd.run SET state = 'SUCCEEDED', end_time = now(), last_sequence = 100000 WHERE id = $1",
    id,
  )
  await p.sees('succeeded ended', '100,000 events')
  await p.hasSeen(10_500)
  await expect(lines, 'of 10,000 events more').toHaveCount(1000)
  expect(await heap(), 'bytes with 10,000 events more').toBeLessThanOrEqual(3 * held)
  expect(await elements(), 'elements with 10,000 events more').toBeLessThanOrEqual(few + 4000)
  expect(asked, 'requests for 10,000 events more').toBeLessThan(10)

  // Scrolling back and forth moves the view, and keeps the number of events in memory.
  const numbers = () =>
    lines.evaluateAll(all => all.map(e => Number(/line (\d+)/.exec((e as HTMLElement).innerText)?.[1] ?? 100000)))
  expect(await numbers()).toContain(99_999)
  for (let i = 0, first = (await numbers())[0]!; i < 3; i++) {
    first -= 500
    await p.press('Show earlier lines')
    await expect.poll(async () => Math.abs((await numbers())[0]! - first)).toBeLessThanOrEqual(3)
  }
  await expect(lines).toHaveCount(1000)
  expect(await numbers(), 'the newest lines have made room').not.toContain(99_999)
  const later = p.control('Show later lines')
  while ((await later.count()) > 0) {
    const shown = (await numbers()).at(-1)!
    await p.press('Show later lines')
    await expect
      .poll(async () => (await later.count()) === 0 || (await numbers()).at(-1)! > shown, 'it shows later lines')
      .toBe(true)
  }
  const all = await numbers()
  expect(all).toContain(99_999)
  expect(
    all.filter((n, i) => i > 0 && n < 100_000 && n !== all[i - 1]! + 3),
    'lines after a gap',
  ).toEqual([])
})

// make pictures keeps the screens for the documents.
test('a run with more events than are loaded at first', async ({ serve, browse }) => {
  const s = await serve({ database: 'filled' })
  // the log of a run names each as a table that no task covers
  await s.db.do(`DO $$ BEGIN FOR i IN 1..450 LOOP
    EXECUTE format('CREATE TABLE nmstrackinglogfar%s (LIKE nmstrackinglogrcp INCLUDING ALL)', i); END LOOP; END $$`)
  const p = await browse(s.url)
  await p.page.setViewportSize({ width: 1200, height: 800 })
  const picture = async (name: string) => {
    if (!process.env.PICTURES) return
    await p.page
      .locator('nav .database code')
      .first()
      .evaluate(e => (e.textContent = 'campaign')) // not a test's
    await p.page.screenshot({ path: join(process.env.PICTURES, name + '.png') })
  }
  await p.sees('Overview')
  await p.open('#/retention', 'Retention')
  await picture('retention')
  await p.open('#/preview', 'Preview')
  await p.press('Start the preview')
  await p.sees('What a run would delete', 'Run exactly this', 'Rejected rows of imports')
  await picture('preview')
  await p.press('Run exactly this')
  await p.sees('What is deleted cannot be restored.')
  await p.press('Run exactly this')
  await p.sees('from this saved plan', 'succeeded ended', 'Space')
  await p.page.emulateMedia({ colorScheme: 'dark' })
  await picture('run-dark')
  const last = await s.db.number('SELECT max(sequence) FROM cleanupd.event WHERE run_id = $1', p.run)
  expect(last, 'events of the run').toBeGreaterThanOrEqual(500)
  await p.page.reload()
  await p.sees('succeeded ended', 'Show earlier lines')
  await p.press('Show earlier lines')
  await p.hasSeen(last)
  const deleted = await s.db.number('SELECT sum(rows_deleted) FROM cleanupd.task WHERE run_id = $1', p.run)
  expect(deleted, 'rows that the run deleted').toBeGreaterThan(30_000)
  await p.open('#/', 'Overview')
  await p.sees(deleted.toLocaleString('en-US'))
})
