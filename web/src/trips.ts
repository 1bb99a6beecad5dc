// Guards in the words of somebody who does not know them.
import type { TrippedGuard } from './api'
import { bytes, number, percent, t, type Key } from './i18n'

const kinds = ['SHARE', 'CUTOFF', 'GROWTH', 'TABLES', 'BYTES', 'POLICY']

/** Says what a guard that trips refuses, and what its number contains. */
export function tripOf(g: TrippedGuard) {
  const named = g.guard?.replace('GUARD_KIND_', '') ?? '',
    kind = kinds.includes(named) ? named : 'other'
  const share = kind === 'SHARE' && Number(g.totalRows) > 0
  const show = kind === 'BYTES' ? bytes : number
  const words = t(share ? 'trip.SHARE.of' : (`trip.${kind}` as Key), {
    number: show(g.number),
    limit: show(g.limit),
    share: percent(Math.round((100 * Number(g.limit)) / Number(g.totalRows)) / 100),
    total: number(g.totalRows),
  })
  return Number(g.recentRows) > 0 ? `${words} ${t('trip.recent', { rows: number(g.recentRows) })}` : words
}
