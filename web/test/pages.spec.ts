// What each page offers to whom, in which language, and whether it can be used without a mouse.
import { expect } from '@playwright/test'
import { oldOrders, pages, shop, test } from './console'
import { issuer } from './issuer'
import { roles, token } from './server'

test('each role is offered its pages', async ({ serve, browse }) => {
  const s = await serve({ tokens: true })
  for (const role of roles) {
    const p = await browse(s.url)
    await p.sees('Sign in')
    if (role === 'viewer') await p.isAccessible('Sign in')
    await p.fill('Token', 'secret-nobody')
    await p.press('Sign in')
    await expect(p.page.getByRole('alert')).toBeVisible()
    await p.signIn(role)
    const offered = pages.filter(page => roles.indexOf(role) >= roles.indexOf(page.role))
    for (const page of offered) {
      await p.open(page.hash, page.title)
      // of an administrator's, each language is looked at below
      if (role === 'viewer') await p.isAccessible(page.title + ' of a viewer')
    }
    await expect(p.page.locator('nav > a:not(.brand)')).toHaveText(offered.map(page => page.title))
    await p.open('#/schedule', 'Schedule')
    await expect(p.page.locator('button.primary')).toHaveCount(role === 'admin' ? 1 : 0)
  }
})

test('each page names the database and the instance, but not to strangers', async ({ serve, browse }) => {
  const s = await serve({ tokens: true, args: ['--instance', 'production'] })
  const p = await browse(s.url)
  await p.sees('Sign in')
  const place = p.page.locator('nav .database')
  await expect(place).toHaveCount(0)
  await p.signIn('viewer')
  await p.open('#/schedule', 'Schedule')
  await expect(place).toHaveText(`${s.db.name} · Instance production`)
  const { json } = await s.ask('GET', '/v1/server', undefined, 'viewer')
  await expect(place).toHaveAttribute('title', json.databaseHost)
})

test('people sign in at an OpenID Connect issuer', async ({ serve, browse }) => {
  const at = await issuer()
  const s = await serve({
    args: ['--oidc-issuer', at.url, '--oidc-audience', 'cleanupd', '--oidc-client-id', 'console'],
  })
  const p = await browse(s.url + '/#/about')
  p.origins.add(at.url) // the redirect
  await p.page.locator('button.primary').click()
  await p.sees('Administrator', 'jane')
  expect(p.page.url()).toBe(s.url + '/#/about')
  expect(await p.page.evaluate(() => sessionStorage.length + localStorage.length), 'values that are kept').toBe(0)
  p.origins.delete(at.url)
  await p.press('Sign out')
  await p.sees('Sign in with')
  at.close()
})

test('an address that is encoded wrongly does not leave the console blank', async ({ serve, browse }) => {
  const s = await serve()
  const p = await browse(s.url)
  for (const hash of ['#/%zz', '#/runs/%E0%A4%A']) {
    await p.goTo(hash)
    await p.page.reload()
    await expect(p.page.locator('nav a').first()).toBeVisible()
  }
})

test('each page is accessible and complete in each language, on a telephone’s screen, too', async ({
  serve,
  browse,
}) => {
  const s = await serve()
  await s.db.do(`INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified)
      SELECT i, 0, 0, now() - '1 year'::interval FROM generate_series(1, 20) i;
    INSERT INTO XtkSessionInfo (sKey, tsExpiration) SELECT i::text, now() - '1 day'::interval
      FROM generate_series(1, 5) i`)
  await s.call('POST', '/v1/holds', {
    table: { name: 'xtkreject' },
    reason: 'an audit',
    expireTime: new Date(Date.now() + 3_600_000),
  })
  await s.call('PUT', '/v1/schedule', {
    cron: '0 4 * * *',
    enabled: true,
    windows: [
      { days: ['MON', 'FRI'], start: '22:00', end: '06:00', pace: 'PACE_FAST' },
      { start: '01:00', end: '05:30' },
    ],
  })
  await s.call('PUT', '/v1/guards', { minRows: '10' })
  const foreseen = await s.run({ dryRun: true, tasks: ['visitors', 'sessions'] })
  const tripped = await s.run({ continueOnError: true, undo: '3600s' })
  expect(tripped.state).toBe('RUN_STATE_FAILED')
  const restored = await s.run({ runId: tripped.id, tables: ['xtksessioninfo'], keys: ['1'] }, '/v1/trash:restore')
  const release = await s.db.hold('LOCK TABLE XtkSessionInfo')
  const paused = JSON.parse((await s.ask('POST', '/v1/runs', { tasks: ['sessions'], detach: true })).text).result.event
  await s.call('POST', `/v1/runs/${paused.runId}:pause`, {})
  await release()
  const hashes = [
    ...[paused.runId, foreseen.id, tripped.id, restored.id].map(id => '#/runs/' + id),
    '#/explain/nmsvisitor/1',
    '#/explain/nmsvisitor/4711',
    '#/policies//public.nmsvisitor',
    ...pages.map(page => page.hash),
  ]

  const p = await browse(s.url)
  await p.page.setViewportSize({ width: 360, height: 800 })
  await p.sees('Overview')
  for (const [language, overview] of [
    ['en', 'Overview'],
    ['de', 'Übersicht'],
    ['fr', 'Vue d’ensemble'],
    ['ja', '概要'],
  ] as const) {
    await p.goTo('#/')
    await p.page.locator('nav select').selectOption(language)
    await p.open('#/', overview)
    await expect(p.page.locator('html')).toHaveAttribute('lang', language)
    for (const hash of hashes) {
      const what = `${hash} in ${language}`
      await p.goTo(hash)
      await expect(p.page.locator('nav a[aria-current]')).toHaveAttribute('href', '#/' + hash.split('/')[1])
      await expect(p.title).toBeVisible()
      await p.hasLoaded()
      await p.seesNot(/\{\w+\}|undefined|NaN|Invalid Date/)
      expect(await p.page.evaluate(() => document.documentElement.scrollWidth), what + ': its width').toBe(360)
      await p.openDetails()
      await p.fits('td', what)
      // colours are the same in all languages
      if (language === 'en') await p.isAccessible(what)
      else await p.passes(what)
    }
  }
})

test('everything can be done with only the keyboard', async ({ serve, browse }) => {
  const s = await serve()
  await s.db.do(`INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified)
    SELECT i, 0, 0, now() - i * interval '1 day' FROM generate_series(1, 100) i`)
  const p = await browse(s.url)
  await p.sees('Overview')
  await p.key('Tab')
  await expect(p.page.locator('.skip'), 'leads past the navigation').toBeFocused()
  await expect(p.page.locator('.skip')).toBeInViewport()
  await p.key('Enter')
  await p.titleHasFocus()
  const visit = async (hash: string, title: string) => {
    await p.reach(`nav a[href='${hash}']`, title)
    await p.key('Enter')
    await expect(p.title).toHaveText(title)
    await p.hasLoaded()
    await p.titleHasFocus()
  }
  for (const { hash, title } of pages) {
    await visit(hash, title)
    await p.canBeWalked(title)
  }

  await visit('#/preview', 'Preview')
  await p.reach('input[type=checkbox]', 'sessions')
  await p.key('Space')
  await expect(p.focused).not.toBeChecked()
  for (const leave of [() => p.key('Escape'), () => p.reach('button', 'Back').then(() => p.key('Enter'))]) {
    await p.reach('button', 'Run without a preview …')
    await p.key('Enter')
    await p.sees('Delete without a preview?')
    for (let i = 0; i < 4; i++) {
      const inside = await p.page.evaluate(
        () => document.activeElement === document.body || document.activeElement!.closest('dialog') !== null,
      )
      expect(inside, 'the focus is in the dialog').toBe(true)
      await p.key('Tab')
    }
    await leave()
    await expect(p.page.locator('dialog')).toHaveCount(0)
    await expect(p.control('Run without a preview …')).toBeFocused()
  }
  await p.reach('button', 'Start the preview')
  await p.key('Enter')
  await p.sees('What a run would delete', '71', 'Run exactly this')
  await p.titleHasFocus()
  await p.canBeWalked('a dry run')

  await visit('#/retention', 'Retention')
  await p.reach('input[type=range]', 'Delivery logs')
  await p.key('ArrowRight')
  await p.sees('Unsaved changes: 1')
  await p.reach('input[type=number]', 'Visitor profiles')
  await p.page.keyboard.type('60')
  await p.reach('button', 'Show the effect')
  await p.key('Space')
  await p.sees('Effect of the changes', '−30')
  await expect(p.focused).toHaveText('Show the effect')
  await p.canBeWalked('changed delays')
  await p.reach('button', 'Save')
  await p.key('Enter')
  await expect(p.page.locator('.sticky')).toHaveCount(0)
  await p.titleHasFocus()
  const days = "SELECT iLongValue / 86400 FROM XtkOption WHERE sName = 'NmsCleanup_VisitorPurgeDelay'"
  expect(await s.db.number(days), 'the days that are stored').toBe(60)

  await visit('#/holds', 'Holds')
  await p.reach('select', 'What')
  await p.key('t') // Table
  await p.reach('input', 'Table name')
  await p.page.keyboard.type('nmsvisitor')
  await p.reach('input', 'Reason')
  await p.page.keyboard.type('an audit')
  await p.key('Enter')
  await p.sees('an audit')
  await p.canBeWalked('a hold')
  await p.reach('button', 'Release')
  await p.key('Enter')
  await p.sees('The next run may delete this data.')
  await p.reach('button.primary', 'Release')
  await p.key('Space')
  await p.sees('No holds.')
  await p.titleHasFocus()

  await visit('#/audit', 'Audit')
  await p.reach('summary', 'Details')
  await p.key('Enter')
  await expect(p.page.locator('details[open] pre')).toBeVisible()
  await p.reach('nav select', 'Language')
  await p.key('ArrowDown')
  await p.sees('Wer Einstellungen geändert')
})

test('for another database than Campaign’s no page mentions Campaign, and none shows a problem', async ({
  serve,
  browse,
}) => {
  const s = await serve({ database: await shop() })
  const p = await browse(s.url)
  await p.sees('No policy is set yet')
  expect(await p.page.locator('main a').evaluateAll(all => all.map(a => (a as HTMLAnchorElement).hash))).toEqual([
    '#/tables',
    '#/policies',
  ])
  const visit = async (hash: string, title: string) => {
    await p.open(hash, title)
    await p.openDetails()
    await expect(p.page.locator('.problem')).toHaveCount(0)
    await p.seesNot(/campaign|recipient|deliver|\bidle\b|process instance|retention/i)
    await p.isAccessible(hash)
  }
  const visitAll = async () => {
    for (const { hash, title } of pages) if (title !== 'Retention') await visit(hash, title)
  }
  await visitAll()
  await p.goTo('#/retention')
  await p.sees('Page not found.')

  await s.setPolicy(oldOrders)
  await p.open('#/preview', 'Preview')
  await p.press('Start the preview')
  await p.sees('What a run would delete')
  await visit(p.hash, 'Dry run')
  await visit('#/explain/shop.order_line/1', 'Explain')
  await visit('#/explain//policy%2Fold-orders', 'Explain')
  await visitAll()
})

test('the page for process instances of AEM Forms is shown without Campaign, too', async ({ forms, serve, browse }) => {
  const s = await serve({ database: await shop(), tokens: true, args: ['--forms-database-url', forms.url] })
  for (const role of ['viewer', 'admin'] as const) {
    const p = await browse(s.url)
    await p.fill('Token', token(role))
    await p.press('Sign in')
    await p.sees('No policy is set yet')
    if (role === 'viewer') {
      await p.goTo('#/retention')
      await p.sees('Page not found.')
      continue
    }
    await p.open('#/retention', 'Retention')
    await p.sees('No rules.')
    await expect(p.page.locator('.problem')).toHaveCount(0)
    await p.open('#/guards', 'Guards')
    await p.sees('Minimum number of process instances')
  }
})
