// One person's data in AEM Forms is found and erased, and process instances that ended long ago are purged by rules.
import { expect } from '@playwright/test'
import { test as base } from './console'
import { Database } from './server'

const test = base.extend<{ forms: Database }>({
  forms: async ({}, use) => {
    const forms = await Database.create('forms')
    await use(forms)
    await forms.drop()
  },
})

test('a person’s data is found, previewed and erased, and the receipt is verified', async ({
  forms,
  serve,
  browse,
}) => {
  const s = await serve({ tokens: true, args: ['--forms-database-url', forms.url, '--forms-gds-in-database'] })
  const page = '#/userdata'
  for (const role of ['viewer', 'operator'] as const) {
    const p = await browse(s.url)
    await p.signIn(role)
    await p.goTo(page)
    await p.sees('Page not found.')
    await expect(p.page.locator(`nav a[href="${page}"]`)).toHaveCount(0)
  }

  const p = await browse(s.url)
  await p.signIn('admin')
  await p.open(page, 'User data')
  await p.sees('No data has been erased.')
  await p.isAccessible('User data')
  await p.fill('User ID', 'nobody')
  await p.press('Find')
  await p.sees('Nothing found.')
  await p.fill('User ID', 'ann')
  await p.press('Add a variable')
  await p.fill('Application', 'Loans')
  await p.fill('Workflow', 'folder/sub/review')
  await p.press('Find')
  await p.sees('started it', 'took part', 'part of a value', 'tasks without a process instance')
  await p.sees('What cannot be searched')
  const chosen = p.page.locator('tbody input:checked')
  const unchosen = p.page.locator('tbody input:not(:checked)')
  const sure = await chosen.count()
  expect(sure, 'process instances that are chosen').toBeGreaterThan(0)
  expect(await unchosen.count(), 'process instances that are not').toBeGreaterThan(0)
  const erase = p.page.locator('.actions button.primary').filter({ hasText: /^Erase$/ })
  await expect(erase, 'before a preview').not.toBeEnabled()
  await p.press('Preview the erasure')
  await p.sees('tb_task')
  expect(await s.db.number('SELECT count(*) FROM cleanupd.erasure'), 'erasures after the preview').toBe(0)
  await p.isAccessible('what is found')
  await chosen.first().click()
  await expect(erase, 'after another choice').not.toBeEnabled()
  await unchosen.first().click()
  await expect(erase, 'after the choice that was previewed').toBeEnabled()
  await p.press('Erase')
  await p.sees('erased for good')
  await expect(p.page.locator('dialog button.primary')).toBeDisabled()
  await p.isAccessible('the question')
  await p.fill('Type ann to confirm', 'ann')
  await p.press('Erase')
  await p.sees('Erased: ')
  const [id] = await s.db.texts('SELECT id FROM cleanupd.erasure')
  await p.press('Receipt')
  await expect(p.title).toHaveText('Receipt')
  expect(p.hash).toBe(`${page}/${id}`)
  await p.sees(id!, 'succeeded', 'admin', 'tb_task', 'Not verified yet.')
  await expect(p.page.locator('dd').filter({ hasText: /^[0-9a-f]{64}$/ }), 'the hash of the user id').not.toHaveCount(0)
  const erased = await p.page.locator('dt:text-is("Process instances") + dd').innerText()
  expect(erased.split(', ')).toHaveLength(sure)
  await p.fill('User ID', 'bob')
  await p.press('Verify')
  await expect(p.page.getByRole('alert')).toContainText('userId')
  await p.fill('User ID', 'ann')
  await p.press('Verify')
  await p.sees(': Nothing found.')
  await p.isAccessible('a receipt')

  // Of two people with the same id in two domains, only the chosen one is erased, and by ids only the chosen instances.
  await p.open(page, 'User data')
  await p.fill('User ID', 'bob')
  await p.press('Find')
  await p.sees('Select whose data to erase')
  await expect(p.page.getByRole('button', { name: 'Preview the erasure' })).not.toBeEnabled()
  await p.press('P100')
  await p.press('Preview the erasure')
  await expect(erase).toBeEnabled()
  await p.fill('User ID', 'joanna')
  await p.press('Find')
  await p.seesNot('Select whose data')
  await expect.poll(() => chosen.count()).toBeGreaterThan(1)
  await chosen.first().click()
  await p.press('Preview the erasure')
  await expect(erase).toBeEnabled()
  const ids = await chosen.evaluateAll(all => all.map(e => Number(e.parentElement!.textContent)))
  await p.press('Erase')
  await p.fill('Type joanna to confirm', 'joanna')
  await p.press('Erase')
  await p.sees('Erased: ')
  const left = 'SELECT count(*) FROM tb_process_instance WHERE id = ANY($1)'
  expect(await forms.number(left, ids), `instances of ${ids} that are left`).toBe(0)
  await p.open('#/audit', 'Audit')
  await p.sees('EraseUserData', 'VerifyErasure')
})

test('a rule for process instances is created, refused where it is wrong, previewed, switched on and removed', async ({
  forms,
  serve,
  browse,
}) => {
  const s = await serve({ args: ['--forms-database-url', forms.url, '--forms-gds-in-database'] })
  await forms.do("ALTER TABLE tb_process_instance ADD ended date DEFAULT now() - interval '1 year'")
  const p = await browse(s.url)
  await p.open('#/retention', 'Retention')
  await p.sees('No rules.')
  await p.fill('Rule name', 'old-loans')
  await p.fill('Application', 'Loans')
  await p.fill('Date column', 'status')
  await p.fill('Older than, in days', '90')
  await p.press('Create the rule')
  await p.sees('tb_process_instance has no date column of this name; its date columns are: ended')
  await p.fill('Date column', 'ended')
  await p.press('Create the rule')
  await p.sees('forms/old-loans', '90 days')
  await p.isAccessible('rules for process instances')
  await p.page.getByLabel('Enabled: old-loans').click()
  await s.db.until('SELECT count(*) FROM cleanupd.forms_purge WHERE enabled')
  await p.press('Preview the rule')
  await expect.poll(() => p.hash).toMatch(/^#\/runs\//)
  await p.sees('tb_process_instance', 'Run exactly this')
  expect(await forms.number('SELECT count(*) FROM tb_process_instance'), 'instances after the preview').toBe(40)
  await p.open('#/retention', 'Retention')
  await p.sees('90 days')
  await s.db.do('UPDATE cleanupd.forms_purge SET days = 91') // by another user
  const remove = async () => {
    await p.press('Remove')
    await p.sees('Remove the rule old-loans?')
    await p.page.locator('dialog button.primary').click()
  }
  await remove()
  await p.sees('Another user has changed these settings')
  await p.press('Try again')
  await p.sees('91 days')
  await remove()
  await p.sees('No rules.')
})
