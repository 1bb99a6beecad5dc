import { expect, test, vi } from 'vitest'

test('a rule that has never run has no number', async () => {
  vi.stubGlobal('localStorage', { getItem: () => null })
  vi.stubGlobal('navigator', { languages: ['en-GB'] })
  vi.stubGlobal('document', { documentElement: {} })
  const { load } = await import('./i18n')
  const { tripOf } = await import('./trips')
  await load()
  const trip = tripOf({ guard: 'GUARD_KIND_POLICY', table: 'a', number: '1', limit: '0' })
  expect(trip).toBe('This rule has never run, and needs a preview first.')
})
