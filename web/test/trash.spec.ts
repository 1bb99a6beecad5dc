// What runs deleted waits in the trash, is restored, or is deleted for good.
import { expect } from '@playwright/test'
import { test } from './console'

test('a run keeps deleted rows for as long as its form says, or else the server’s setting', async ({
  serve,
  browse,
}) => {
  const s = await serve({ tokens: true, args: ['--undo', '36h'] })
  await s.db.do(
    `INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2020-01-01' FROM generate_series(1, 7) i`,
  )
  const p = await browse(s.url)
  await p.signIn('operator')
  await p.open('#/preview', 'Preview')
  await p.press('Run without a preview …')
  await p.sees('What is deleted waits in the trash for 1 day 12 hr, and can be restored. Policies may say otherwise.')
  await p.fill('Undo, in hours', '0')
  await p.sees('What is deleted cannot be restored.')
  await expect(p.page.locator('dialog')).not.toContainText('Policies')
  await p.fill('Undo, in hours', '0.5')
  await p.press('Run now')
  await p.sees('succeeded ended', '7 rows deleted')
  expect(await s.db.texts("SELECT undo::text FROM cleanupd.task WHERE name = 'sessions'")).toEqual(['00:30:00'])
})

test('what a run deleted is brought back from its page, and the rest is deleted for good', async ({
  serve,
  browse,
}) => {
  const s = await serve({ tokens: true })
  await s.db.do(
    `INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2020-01-01' FROM generate_series(1, 1200) i`,
  )
  const [p, viewer, operator] = [await browse(s.url), await browse(s.url), await browse(s.url)]
  await p.signIn('admin')
  await viewer.signIn('viewer')
  await operator.signIn('operator')
  await p.open('#/trash', 'Trash')
  await p.sees('Undo is off by default.', 'cleanupd serve --undo 72h', 'The trash is empty.')
  await p.open('#/preview', 'Preview')
  await p.press('Run without a preview …')
  await p.fill('Undo, in hours', '72')
  await p.press('Run now')
  await p.sees('succeeded ended', '1,200 rows deleted', 'Undo until', '1,200 rows in the trash')
  const run = p.hash
  await s.db.do("INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('1', now() + '1 day')")
  for (const other of [viewer, operator])
    for (const [hash, title] of [
      [run, 'Run ·'],
      ['#/trash', 'Trash'],
    ] as const) {
      await other.open(hash, title)
      await other.sees('1,200')
      for (const name of ['Restore', 'Delete for good'])
        await expect(other.page.getByRole('button', { name }), 'for administrators only').toHaveCount(0)
    }
  await p.confirm('Restore', '1,200')
  await p.sees('of what this run deleted', 'succeeded ended', '1,199 rows restored', '1 row was not restored')
  const counts = p.page.locator('section [aria-label=Tasks] tbody td.number')
  for (const [i, [title, n]] of Object.entries([
    ['Restored', '1,199'],
    ['Existing', '1'],
    ['Failed', '0'],
  ] as const)) {
    await expect(counts.nth(Number(i))).toHaveAttribute('data-title', title)
    await expect(counts.nth(Number(i))).toHaveText(n)
  }
  await p.isAccessible('a restore')
  expect(await s.db.number('SELECT count(*) FROM XtkSessionInfo')).toBe(1200)
  await p.open('#/runs', 'History')
  await p.sees('restored 1,199')
  await p.open('#/', 'Overview')
  await expect(p.page.locator('.big').filter({ hasText: /^1,200$/ }), 'the last cleanup').toHaveCount(1)
  await p.open('#/trash', 'Trash')
  await p.isAccessible('the trash of an admin')
  await p.canBeWalked('the trash')
  await p.confirm('Delete for good', '1')
  await p.sees('1 row deleted for good.', 'The trash is empty.')
  await p.titleHasFocus()
})

test('a deleted row is found by its key, and comes back alone', async ({ serve, browse }) => {
  const s = await serve({ tokens: true })
  await s.db.do(`INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified)
    SELECT i, 0, 0, '2020-01-01' FROM generate_series(1, 20) i`)
  const [p, viewer] = [await browse(s.url), await browse(s.url)]
  await p.signIn('admin')
  await viewer.signIn('viewer')
  await p.open('#/preview', 'Preview')
  await p.press('Run without a preview …')
  await p.fill('Undo, in hours', '72')
  await p.press('Run now')
  await p.sees('succeeded ended', '20 rows deleted')
  for (const q of [p, viewer]) {
    await q.open('#/explain/NmsVisitor/4', 'Explain')
    await q.sees('Row not found.', 'Trash · visitors · Expires')
    await expect(q.control('Restore')).toHaveCount(q === p ? 1 : 0)
  }
  await p.isAccessible('the explanation of a deleted row')
  await p.press('Restore')
  await p.sees(s.db.name + ' · ', '"public"."nmsvisitor" 4')
  await p.press('Restore')
  await p.sees('of what this run deleted', 'succeeded ended', '1 row restored')
  expect(await s.db.texts('SELECT iVisitorId FROM NmsVisitor WHERE iVisitorId > 0')).toEqual(['4'])
})

test('some tables of a run are restored, or deleted for good, and the others stay', async ({ serve, browse }) => {
  const s = await serve()
  await s.db
    .do(`INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, '2020-01-01' FROM generate_series(1, 10) i;
    ALTER TABLE XtkSessionInfo ADD UNIQUE (sKey);
    CREATE TABLE visit (session varchar REFERENCES XtkSessionInfo (sKey) ON DELETE CASCADE);
    INSERT INTO visit VALUES ('1'), ('1'), ('2');
    INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified)
      SELECT i, 0, 0, '2020-01-01' FROM generate_series(1, 20) i`)
  const run = await s.run({ tasks: ['sessions', 'visitors'], undo: '3600s' })
  const { hold } = await s.call('POST', '/v1/holds', { reason: 'a test', table: { name: 'visit' } })
  const p = await browse(s.url)
  await p.open('#/trash', 'Trash')
  const [visitors, sessions] = ['"public"."nmsvisitor" 20', '"public"."xtksessioninfo" 10'].map(
    table => table + ' rows in the trash',
  ) as [string, string]
  await p.press('Delete for good')
  await p.press(visitors)
  await p.press(sessions)
  await p.fill('Type 3 to confirm', '3')
  await p.press('Delete for good')
  await p.sees('a hold may be about rows of')
  await s.call('POST', `/v1/holds/${hold.id}:release`, {})
  await p.press('Delete for good')
  await p.sees('3 rows deleted for good.')
  await p.press('Restore')
  await p.press(visitors)
  await p.fill('Into a new schema', 'pg_back')
  await p.fill('Type 10 to confirm', '10')
  await p.press('Restore')
  await p.sees('must not be a schema of PostgreSQL or cleanupd')
  await p.fill('Into a new schema', 'back')
  await p.press('Restore')
  await p.sees('succeeded ended', '10 rows restored')
  expect(await s.db.number('SELECT count(*) FROM back.xtksessioninfo'), 'rows of the new table').toBe(10)
  await p.open('#/runs/' + run.id, 'Run ·')
  await p.sees('20 rows in the trash')
})
