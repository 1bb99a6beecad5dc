// Texts in the user's language; numbers and times in the browser's locale. The server's messages are English; those of runs are
// translated by their codes.
import type { en } from './lang/en'

export type Key = keyof typeof en
export type Words = Record<Key, string>

/** The texts of a language. The messages of runs are already in English. */
type Language = { words: Words; messages?: Record<string, string> }

const languages: Record<string, () => Promise<Language>> = {
  en: () => import('./lang/en'),
  de: () => import('./lang/de'),
  fr: () => import('./lang/fr'),
  ja: () => import('./lang/ja'),
}
export const names: Record<string, string> = { en: 'English', de: 'Deutsch', fr: 'Français', ja: '日本語' }
const chosen = 'cleanupd.language'

let words: Words
let messages: Record<string, string>
export let language = 'en'

/** Loads the chosen language, or the first of the browser's languages that is available. */
export async function load(asked = localStorage.getItem(chosen) ?? '') {
  const wanted = [asked, ...navigator.languages.map(l => l.slice(0, 2))]
  language = wanted.find(l => l in languages) ?? 'en'
  const loaded = await languages[language]!()
  words = loaded.words
  messages = loaded.messages ?? {}
  document.documentElement.lang = language
}

export function choose(l: string) {
  localStorage.setItem(chosen, l)
  return load(l)
}

/** Replaces the {name} placeholders of a text; {name|one|many} is one if name is 1. */
const fill = (text: string, values: Record<string, string | number>) =>
  text.replace(/\{(\w+)(?:\|([^|}]*)\|([^|}]*))?\}/g, (_, name: string, one?: string, many?: string) =>
    String((one === undefined ? values[name] : String(values[name]) === '1' ? one : many) ?? ''),
  )

/** Returns the text for a key that may have none. */
export const maybe = (key: string) => (words as Record<string, string>)[key]

/** Returns the text for a key. */
export const t = (key: Key, values: Record<string, string | number> = {}) => fill(words[key], values)

/** A message of a run, or a detail of a result: its English text and, if it has one, its code with its parameters. */
export type Message = { code?: string; params?: Record<string, string>; text?: string }

/** Returns the text of a message in the user's language; the English one if there is no translation. */
export function said({ code, params = {}, text = '' }: Message) {
  const template = messages[code ?? '']
  if (!template) return { text, lang: 'en' }
  const grouped = Object.entries(params).map(([name, value]) => [
    name,
    /^(rows|tables|partitions)$/.test(name) && /^\d{4,}$/.test(value) ? number(value) : value,
  ])
  const translated = fill(template, Object.fromEntries(grouped))
  return {
    text: params.server ? `${t('run.server', { account: params.server })} ${translated}` : translated,
    lang: language,
  }
}

const locale = () => navigator.languages.find(l => l.startsWith(language)) ?? language

const made = new Map<string, unknown>()

/** Returns a cached formatter, because creating one is slow. */
function formatter<O, F>(kind: { new (locale: string, options: O): F; name: string }, options: O): F {
  const key = JSON.stringify([kind.name, locale(), options])
  if (!made.has(key)) made.set(key, new kind(locale(), options))
  return made.get(key) as F
}
const numbers = (options: Intl.NumberFormatOptions) => formatter(Intl.NumberFormat, options)
const times = (options: Intl.DateTimeFormatOptions) => formatter(Intl.DateTimeFormat, options)

export const number = (n: string | number | undefined, digits = 0) =>
  numbers({ maximumFractionDigits: digits }).format(Number(n ?? 0))
/** Formats a number in compact notation, for the scale of a chart. */
export const short = (n: number) => numbers({ notation: 'compact' }).format(n)
export const percent = (share: number) => numbers({ style: 'percent', maximumFractionDigits: 1 }).format(share)
export const time = (at: string | Date) => times({ dateStyle: 'medium', timeStyle: 'short' }).format(new Date(at))
export const clock = (at: string) => times({ timeStyle: 'medium' }).format(new Date(at))
export const day = (at: string | Date) => times({ dateStyle: 'medium' }).format(new Date(at))
/** Returns the short name of a day's weekday in UTC. */
export const weekday = (at: Date) => times({ weekday: 'short', timeZone: 'UTC' }).format(at)

/** Formats a number of bytes as the command line does. */
export function bytes(n: string | number | undefined) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let value = Number(n ?? 0),
    unit = 0
  for (; Math.abs(value) >= 1024 && unit < units.length - 1; unit++) value /= 1024
  const digits = value < 10 && unit > 0 ? 1 : 0
  return `${numbers({ minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value)} ${units[unit]}`
}

/** Formats a duration in its two largest units; a short one in tenths of a second. */
export function period(seconds: number) {
  if (seconds > 0 && seconds < 9.95)
    return numbers({ style: 'unit', unit: 'second', unitDisplay: 'short', maximumFractionDigits: 1 }).format(seconds)
  const parts: string[] = []
  let rest = Math.max(0, Math.round(seconds))
  for (const [unit, size] of [
    ['day', 86400],
    ['hour', 3600],
    ['minute', 60],
    ['second', 1],
  ] as const) {
    const n = Math.floor(rest / size)
    if (parts.length < 2 && (n > 0 || (unit === 'second' && parts.length === 0))) {
      parts.push(numbers({ style: 'unit', unit, unitDisplay: 'short' }).format(n))
    } else if (parts.length > 0) break
    rest -= n * size
  }
  return parts.join(' ')
}

/** Formats a time relative to now. */
export function relative(at: string | Date) {
  const seconds = (new Date(at).getTime() - Date.now()) / 1000
  const format = formatter(Intl.RelativeTimeFormat, { numeric: 'auto' } as Intl.RelativeTimeFormatOptions)
  for (const [unit, size] of [
    ['day', 86400],
    ['hour', 3600],
    ['minute', 60],
  ] as const) {
    if (Math.abs(seconds) >= size) return format.format(Math.round(seconds / size), unit)
  }
  return format.format(Math.round(seconds), 'second')
}
