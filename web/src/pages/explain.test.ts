import { expect, test } from 'vitest'
import { keyColumns } from './explain'

test('a key has columns with their values', () => {
  const read = (text: string) => keyColumns(text).map(c => `${c.column.trim()}:${c.value}`)
  expect(read('-4711')).toEqual([':-4711'])
  expect(read('igroupid=5, irecipientid=-7')).toEqual(['igroupid:5', 'irecipientid:-7'])
  expect(read('iid=5,tsLog=2026-02-28T12:00:00Z')).toEqual(['iid:5', 'tsLog:2026-02-28T12:00:00Z'])
  expect(read('saddress=ann,joe@example.com')).toEqual(['saddress:ann,joe@example.com'])
  expect(read('skey=a=b')).toEqual(['skey:a=b'])
  expect(read('tenant_id=1,name=bug, fix')).toEqual(['tenant_id:1', 'name:bug, fix'])
})
