import { expect, test } from 'vitest'
import { contextOf } from './context'

test('a role may do what the lower ones may', () => {
  const may = (role: 'ROLE_VIEWER' | 'ROLE_OPERATOR' | 'ROLE_ADMIN' | undefined) => {
    const context = contextOf({ role }, {})
    return [context.may('VIEWER'), context.may('OPERATOR'), context.may('ADMIN')]
  }
  expect(may('ROLE_ADMIN')).toEqual([true, true, true])
  expect(may('ROLE_OPERATOR')).toEqual([true, true, false])
  expect(may('ROLE_VIEWER')).toEqual([true, false, false])
  expect(may(undefined)).toEqual([false, false, false])
})
