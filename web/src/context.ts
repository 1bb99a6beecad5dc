import type { Caller, Server } from './api'

export type Role = 'VIEWER' | 'OPERATOR' | 'ADMIN'
const roles: Role[] = ['VIEWER', 'OPERATOR', 'ADMIN']

/** The caller and the server, passed to every page. */
export type Context = { caller: Caller; server: Server; may: (role: Role) => boolean }

/** Returns the context of a caller. A role includes the permissions of the lower ones. */
export function contextOf(caller: Caller, server: Server): Context {
  const rank = roles.findIndex(role => caller.role === `ROLE_${role}`)
  return { caller, server, may: role => roles.indexOf(role) <= rank }
}
