// Policies, the rows and tables that they are about, and what tasks say about them.
import { expect } from '@playwright/test'
import { oldOrders, shop, test } from './console'
import { Database } from './server'

test('a policy is made with a form, which says at its fields what is wrong with them', async ({ serve, browse }) => {
  const s = await serve({ database: await shop() })
  const p = await browse(s.url)
  await p.open('#/policies', 'Policies')
  await p.press('Create a policy')
  for (const [table, date, name] of [
    ['shop.login', 'At', 'shop-login'],
    ['shop.order_line', 'placed', 'shop-order-line'],
  ] as const) {
    await p.fill('Table', table)
    await expect(p.field('Date column')).toHaveValue(date)
    await expect(p.field('Name')).toHaveValue(name)
  }
  await p.fill('Older than', '24856')
  await p.fill('Most rows of a statement', '1000001')
  await p.press('Save')
  await p.isWrong('Older than')
  await p.isWrong('Most rows of a statement')
  await expect(p.page.locator('.problem'), 'the same once more').toHaveCount(0)
  await p.isAccessible('the form with mistakes')
  await p.fill('Older than', '48')
  await p.fill('Unit', 'hours')
  await p.fill('Most rows of a statement', '')
  await p.fill('Undo, in hours', '36')
  await p.sees('What is deleted waits in the trash for 1 day 12 hr, and can be restored.')
  await p.fill('Name', 'recent-orders')
  await p.press('Check')
  await p.sees('The server accepts the policy.')
  expect(await s.db.number('SELECT count(*) FROM cleanupd.policy'), 'policies after the check').toBe(0)
  await p.press('Save')
  await p.sees('The policy is saved.')
  await p.isAccessible('the form with a saved policy')
  const { policy } = await s.call('GET', '/v1/policies/recent-orders')
  expect(policy).toMatchObject({
    table: 'shop.order_line',
    olderThan: { column: 'placed', hours: 48 },
    enabled: false,
    undo: '129600s',
  })
  await p.press('Preview the rule')
  await p.sees('What a run would delete', 'policy/recent-orders', '990 rows to delete', 'The trash would need')

  // a new policy does not silently replace an existing one
  await p.open('#/policies//shop.login', 'Create a policy')
  await p.fill('Name', 'recent-orders')
  await p.sees('There is a policy of this name already.')
  await expect(p.page.getByRole('button', { name: 'Save' })).toBeDisabled()
})

test('changing a policy keeps the parts for which the form has no fields', async ({ serve, browse }) => {
  const s = await serve({ database: await shop() })
  const before = await s.setPolicy({
    ...oldOrders,
    keepNewest: { per: ['customer'], count: 3 },
    assign: [{ column: 'note' }],
  })
  const p = await browse(s.url)
  await p.open('#/policies', 'Policies')
  await p.press('Edit')
  await expect(p.field('Older than')).toHaveValue('730')
  await p.sees('Further parts of the policy', 'op: EQUAL', 'keepNewest:')
  await p.fill('Older than', '731')
  await p.press('As YAML')
  await expect(p.field('Rule, as YAML')).toHaveValue(/731/)
  await p.press('As YAML')
  await p.fill('Description', 'Old orders')
  await p.press('Save')
  await p.sees('The policy is saved.')
  const { policy } = await s.call('GET', '/v1/policies/old-orders')
  const want = {
    ...before,
    olderThan: { ...before.olderThan, days: 731 },
    description: 'Old orders',
    etag: policy.etag,
    updateTime: policy.updateTime,
  }
  expect(policy).toEqual(want)

  await p.press('As YAML')
  await p.fill('Rule, as YAML', '{')
  await p.press('As YAML')
  await expect(p.page.locator('.problem')).toBeVisible()
  await p.fill('Rule, as YAML', '{"table": "shop.login", "olderThan": {"column": "At", "hours": 5}}')
  await p.press('As YAML')
  await expect(p.field('Table')).toHaveValue('shop.login')
  await expect(p.field('Unit')).toHaveValue('hours')
  await s.setPolicy({ ...want, description: 'Older orders' })
  await p.press('Save')
  await p.sees('Another user has changed these settings')
  await p.press('Try again')
  await expect(p.field('Table')).toHaveValue('shop.order_line')
})

test('tables are shown with their growth, why they are retained, and suggestions', async ({ serve, browse }) => {
  const db = await Database.create('campaign')
  await db.do(`INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (520, 13); CREATE TABLE wkf520_1 (i int);
    CREATE TABLE wkf521_1 (i int);
    CREATE TABLE cusorders AS SELECT i, now() - i * interval '1 day' AS created, ''::char(600) AS filler
      FROM generate_series(1, 20000) i`)
  await db.do('VACUUM ANALYZE cusorders')
  await db.do('VACUUM ANALYZE wkf520_1')
  const s = await serve({ database: db })
  await s.db.do(`DELETE FROM cleanupd.table_sampling; DELETE FROM cleanupd.table_sample;
    DELETE FROM cleanupd.sampled_table;
    INSERT INTO cleanupd.table_sampling SELECT now() - i * interval '1 day' FROM generate_series(1, 10) i;
    INSERT INTO cleanupd.sampled_table (name, first_time) VALUES ('public.cusorders', now() - interval '10 days');
    INSERT INTO cleanupd.table_sample (table_id, time, rows, bytes, index_bytes)
      SELECT id, now() - i * interval '1 day', 1000 * (10 - i), 1000000 * (10 - i), 0
      FROM generate_series(1, 9) i, cleanupd.sampled_table`)
  const p = await browse(s.url + '/#/tables')
  await p.sees('public.cusorders', 'KiB')
  await expect(p.page.locator('.spark path')).toHaveCount(1)
  await p.openDetails()
  await p.sees('created < now - 365 d')
  await p.fill('Order', 'NAME')
  await expect(p.page.locator('tbody code').first()).toHaveText('public.cusbroadlogstore')
  await p.press('Show more')
  await expect.poll(() => p.page.locator('tbody tr').count()).toBeGreaterThan(50)
  await p.openDetails()
  await p.sees('public.wkf%', 'workflow 520 is paused', '2 tables, 1 unused')
  await p.press('Only tables that no task covers')
  await p.seesNot('nmsvisitor')
  await p.sees('public.cusorders', 'no task')
  await p.page.locator('a[href="#/policies//public.cusorders"]').click()
  await p.sees('Create a policy')
  for (const [label, value] of Object.entries({
    'Table': 'public.cusorders',
    'Date column': 'created',
    'Older than': '365',
    'Unit': 'days',
    'Name': 'cusorders',
  }))
    await expect(p.field(label)).toHaveValue(value)
})

test('rows and tasks are explained', async ({ serve, browse }) => {
  const s = await serve()
  const p = await browse(s.url)
  await p.open('#/explain/nmsvisitor/4711', 'Explain')
  await p.sees('Row not found.', 'Runs that deleted rows of this table')
  await expect(p.page.locator('#tables option[value=nmsvisitor]'), 'tables to choose from').toHaveCount(1)
  await p.sees('app-subscriptions')
  await p.fill('Or the statements of a task', 'visitors')
  await p.sees('DELETE FROM ONLY', 'iOrigin is 0', '$1 = ')
})
