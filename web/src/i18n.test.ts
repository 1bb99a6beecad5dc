import { beforeAll, expect, test, vi } from 'vitest'
import { bytes, load, said } from './i18n'

beforeAll(() => {
  vi.stubGlobal('localStorage', { getItem: () => null })
  vi.stubGlobal('navigator', { languages: ['en-GB'] })
  vi.stubGlobal('document', { documentElement: {} })
})

test('shows a message in the language of the user', async () => {
  const message = (rows: string, server?: string) => ({
    code: 'RESULT_ROWS_LOCKED',
    params: { rows, ...(server && { server }) },
    text: `${rows} rows`,
  })
  await load('de')
  expect(said(message('1'))).toEqual({ text: '1 veraltete Zeile war durch Locks anderer Sitzungen belegt', lang: 'de' })
  expect(said(message('2000')).text).toBe('2.000 veraltete Zeilen waren durch Locks anderer Sitzungen belegt')
  expect(said(message('2', 'far')).text).toMatch(/^Midsourcing-Server far: 2 veraltete/)
  expect(said({ ...message('2'), params: {} }).text).toBe(
    ' veraltete Zeilen waren durch Locks anderer Sitzungen belegt',
  )
  await load('ja')
  expect(said(message('1')).text).toBe('古い行 1 行が他のセッションにロックされていました')
})

test('shows the English text of a message without a translation', async () => {
  await load('de')
  expect(said({ code: 'NOT_KNOWN', params: { rows: '1' }, text: 'a text' })).toEqual({ text: 'a text', lang: 'en' })
  expect(said({ text: 'no code' })).toEqual({ text: 'no code', lang: 'en' })
  await load('en')
  expect(said({ code: 'RESULT_ROWS_LOCKED', params: { rows: '1' }, text: 'in English' }).text).toBe('in English')
})

test('shows bytes as the command line does', async () => {
  expect([0, 999, 1024, 3 * 1024 ** 2, 15.5 * 1024 ** 2].map(bytes)).toEqual([
    '0 B',
    '999 B',
    '1.0 KiB',
    '3.0 MiB',
    '16 MiB',
  ])
})
