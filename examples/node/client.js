#!/usr/bin/env node
// Runs the cleanup on a server, or watches a run, and prints what happens. With --dry-run it shows what would be deleted and which guards
// would refuse it, and with --approve it does exactly that. It comes back to the run when the connection is lost. Its exit status is 0
// only if the run succeeded.
'use strict';

const { randomUUID } = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const { parseArgs, promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const { loadSync } = require('@grpc/proto-loader');

const { values: args } = parseArgs({
  options: {
    server: { type: 'string', default: '127.0.0.1:9090' }, // the gRPC address of a server, HOST:PORT
    'tls-ca': { type: 'string' }, // speak TLS, and trust the authorities in this PEM file
    token: { type: 'string', default: process.env.CLEANUPD_TOKEN }, // the token to send, with --tls-ca only; other users can see a flag
    watch: { type: 'string' }, // watch the run with this id instead of starting one
    task: { type: 'string', multiple: true }, // run this task; may be repeated (default all)
    'dry-run': { type: 'boolean', default: false }, // change nothing, count what would be deleted
    approve: { type: 'string' }, // do what the dry run with this id found, and accept the guards that it showed
    patience: { type: 'string', default: '60' }, // how many seconds to try to start a run, or to come back to it, after the connection was lost
  },
});

// 64-bit numbers are strings: a log generation is too large for a number. Enums are numbers.
const proto = loadSync('cleanup/v1/cleanup.proto', {
  includeDirs: [path.join(__dirname, '../../proto')], longs: String, defaults: true, oneofs: true,
});
const api = grpc.loadPackageDefinition(proto).cleanup.v1;
const [RunState, TaskState, LogLevel, RefusalReason, PreviewAction, GuardKind] =
  [api.RunState, api.TaskState, api.LogLevel, api.RefusalReason, api.PreviewAction, api.GuardKind].map(enumOf);

// Returns an object with the number of each name of an enum, and the name of each number.
function enumOf({ type }) {
  return Object.fromEntries(type.value.flatMap(({ name, number }) => [[name, number], [number, name]]));
}

function connect() {
  let credentials = grpc.credentials.createInsecure();
  if (args['tls-ca']) credentials = grpc.credentials.createSsl(fs.readFileSync(args['tls-ca']));
  if (args.token) {
    if (!args['tls-ca']) throw new Error('a token would be sent in plain text: add --tls-ca');
    const bearer = new grpc.Metadata();
    bearer.set('authorization', `Bearer ${args.token}`);
    credentials = grpc.credentials.combineChannelCredentials(
      credentials, grpc.credentials.createFromMetadataGenerator((_, done) => done(null, bearer)));
  }
  return new api.CleanupService(args.server, credentials, {
    // A server that vanished is noticed after a minute, and one that came back after two seconds.
    'grpc.keepalive_time_ms': 30_000,
    'grpc.keepalive_timeout_ms': 30_000,
    'grpc.max_reconnect_backoff_ms': 2_000,
  });
}

// Returns the guards that a dry run showed, with their numbers.
async function shownGuards(service, dryRun) {
  const { run } = await promisify(service.getRun).call(service, { runId: dryRun });
  return run.results.flatMap((result) => result.preview.flatMap((table) => table.guards));
}

// Yields the events of the run until it has ended.
async function* events(service) {
  // The request id lets the request be repeated until an answer comes, and starts one run.
  const request = { tasks: args.task, dryRun: args['dry-run'], plan: args.approve, requestId: randomUUID() };
  if (args.approve) request.acceptGuards = await shownGuards(service, args.approve);
  let at = args.watch && { runId: args.watch }; // asks for the events after the last one
  for (let lost; ; ) {
    const stream = at ? service.watchRun(at) : service.runCleanup(request);
    try {
      for await (const { event } of stream) {
        lost = undefined;
        at = { runId: event.runId, afterSequence: event.sequence, logGeneration: event.logGeneration };
        yield event;
        if (event.runFinished) return;
      }
      throw new Error('the stream ended before the run did');
    } catch (error) {
      const run = at ? `run ${at.runId}` : 'the run';
      if (error.code === grpc.status.UNAVAILABLE) {
        if (!lost) {
          lost = Date.now();
          console.error(`The connection is lost, trying for ${args.patience} s to come back to ${run}.`);
        }
        if (Date.now() - lost > args.patience * 1000) {
          console.error(`${run} may go on, see --watch.`);
          throw error;
        }
        await sleep(1000);
      } else if (at && error.code === grpc.status.DATA_LOSS) {
        console.error('The database lost events of the run, watching it again from the first.');
        at = { runId: at.runId };
      } else {
        throw error;
      }
    }
  }
}

// Prints an event. What may hold text of the database is quoted, since that may hold anything, such as commands to a terminal.
function show(event) {
  if (event.runStarted) {
    console.log(`Run ${event.runId} began.`);
  } else if (event.taskProgress) {
    const p = event.taskProgress;
    console.log(`${p.task}: ${Number(p.rowsDeleted) + Number(p.rowsUpdated)} rows so far, now ${JSON.stringify(p.object)}`);
  } else if (event.taskFinished) {
    const r = event.taskFinished.result;
    console.log(`${r.task}: ${TaskState[r.state]}, ${r.rowsDeleted} rows deleted, ${r.rowsUpdated} updated, ${r.rowsRetained} left`);
    for (const p of r.preview) { // of a dry run
      console.log(`  ${PreviewAction[p.action]} ${JSON.stringify(p.table)}: ${p.rows} rows, ${p.tables} tables`);
      for (const g of p.guards) {
        console.log(`  ${GuardKind[g.guard]} refuses this for ${JSON.stringify(g.table)}: the number is ${g.number}, the limit is ${g.limit}`);
      }
    }
  } else if (event.log && event.log.level !== LogLevel.LOG_LEVEL_INFO) {
    console.log(`${event.log.task}: ${LogLevel[event.log.level]} ${JSON.stringify(event.log.message)}`);
  } else if (event.runFinished) {
    console.log(`Run ${event.runId} ended: ${RunState[event.runFinished.run.state]}.`);
  }
}

async function main() {
  let last;
  for await (last of events(connect())) show(last);
  const { run } = last.runFinished;
  if (run.reason === RefusalReason.REFUSAL_REASON_GUARD) console.error('A guard refused it: look at a --dry-run, and --approve that.');
  if (run.state !== RunState.RUN_STATE_SUCCEEDED) throw new Error(`run ${run.id} is ${RunState[run.state]}: ${JSON.stringify(run.error)}`);
}

main().then(() => process.exit(0), (error) => {
  console.error(error.code in grpc.status ? `${grpc.status[error.code]}: ${JSON.stringify(error.details)}` : error.message);
  process.exit(1);
});
