// Runs the cleanup on a server, or watches a run, and prints what happens. With --dry-run it shows what would be deleted and which guards
// would refuse it, and with --approve it does exactly that. It comes back to the run when the connection is lost. Its exit status is 0
// only if the run succeeded.
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { enumToJson, isMessage, type MessageInitShape } from "@bufbuild/protobuf";
import { type Client, Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import {
  CleanupService, LogEntrySchema, LogLevel, LogLevelSchema, PreviewActionSchema, RefusalReason, type Run, type RunCleanupRequestSchema,
  type RunEvent, RunFinishedSchema, RunStartedSchema, RunState, RunStateSchema, TaskFinishedSchema, TaskProgressSchema, TaskStateSchema,
  type WatchRunRequestSchema,
} from "./gen/cleanup/v1/cleanup_pb.js";
import { GuardKindSchema, type TrippedGuard } from "./gen/cleanup/v1/guard_pb.js";

const { values: args } = parseArgs({
  options: {
    server: { type: "string", default: "127.0.0.1:9090" }, // the gRPC address of a server, HOST:PORT
    "tls-ca": { type: "string" }, // speak TLS, and trust the authorities in this PEM file
    token: { type: "string", default: process.env.CLEANUPD_TOKEN }, // the token to send, with --tls-ca only; other users can see a flag
    watch: { type: "string" }, // watch the run with this id instead of starting one
    task: { type: "string", multiple: true }, // run this task; may be repeated (default all)
    "dry-run": { type: "boolean", default: false }, // change nothing, count what would be deleted
    approve: { type: "string" }, // do what the dry run with this id found, and accept the guards that it showed
    patience: { type: "string", default: "60" }, // how many seconds to try to start a run, or to come back to it, after the connection was lost
  },
});

function connect(): Client<typeof CleanupService> {
  const { server, token, "tls-ca": ca } = args;
  if (token && !ca) throw new Error("a token would be sent in plain text: add --tls-ca");
  const authorize: Interceptor = (next) => (request) => {
    if (token) request.header.set("authorization", `Bearer ${token}`);
    return next(request);
  };
  return createClient(CleanupService, createGrpcTransport({
    baseUrl: `${ca ? "https" : "http"}://${server}`,
    nodeOptions: ca ? { ca: readFileSync(ca) } : {},
    interceptors: [authorize],
    // A server that vanished is noticed after a minute.
    pingIntervalMs: 30_000,
    pingTimeoutMs: 30_000,
  }));
}

// shownGuards returns the guards that a dry run showed, with their numbers.
async function shownGuards(service: Client<typeof CleanupService>, dryRun: string): Promise<TrippedGuard[]> {
  const { run } = await service.getRun({ runId: dryRun });
  return run!.results.flatMap((result) => result.preview.flatMap((table) => table.guards));
}

// events yields the events of the run until it has ended.
async function* events(service: Client<typeof CleanupService>): AsyncGenerator<RunEvent> {
  // The request id lets the request be repeated until an answer comes, and starts one run.
  const request: MessageInitShape<typeof RunCleanupRequestSchema> =
    { tasks: args.task, dryRun: args["dry-run"], plan: args.approve, requestId: randomUUID() };
  if (args.approve) request.acceptGuards = await shownGuards(service, args.approve);
  // asks for the events after the last one; undefined before the first
  let at: MessageInitShape<typeof WatchRunRequestSchema> | undefined = args.watch ? { runId: args.watch } : undefined;
  for (let lost: number | undefined; ; ) {
    const stream: AsyncIterable<{ event?: RunEvent }> = at ? service.watchRun(at) : service.runCleanup(request);
    try {
      for await (const { event } of stream) {
        if (!event) continue;
        lost = undefined;
        at = { runId: event.runId, afterSequence: event.sequence, logGeneration: event.logGeneration };
        yield event;
        if (isMessage(event.event.value, RunFinishedSchema)) return;
      }
      throw new Error("the stream ended before the run did");
    } catch (error) {
      const run = at ? `run ${at.runId}` : "the run";
      if (!(error instanceof ConnectError)) throw error;
      // An error without a status of the server is one of the connection.
      if (error.code === Code.Unavailable || !error.metadata.has("grpc-status")) {
        if (!lost) console.error(`The connection is lost, trying for ${args.patience} s to come back to ${run}.`);
        lost ??= Date.now();
        if (Date.now() - lost > Number(args.patience) * 1000) {
          console.error(`${run} may go on, see --watch.`);
          throw error;
        }
        await sleep(1000);
      } else if (at && error.code === Code.DataLoss) {
        console.error("The database lost events of the run, watching it again from the first.");
        at = { runId: at.runId };
      } else {
        throw error;
      }
    }
  }
}

// show prints an event. What may hold text of the database is quoted, since that may hold anything, such as commands to a terminal.
function show({ runId, event: { value: event } }: RunEvent) {
  if (isMessage(event, RunStartedSchema)) {
    console.log(`Run ${runId} began.`);
  } else if (isMessage(event, TaskProgressSchema)) {
    console.log(`${event.task}: ${event.rowsDeleted + event.rowsUpdated} rows so far, now ${JSON.stringify(event.object)}`);
  } else if (isMessage(event, TaskFinishedSchema)) {
    const r = event.result!;
    const state = enumToJson(TaskStateSchema, r.state);
    console.log(`${r.task}: ${state}, ${r.rowsDeleted} rows deleted, ${r.rowsUpdated} updated, ${r.rowsRetained} left`);
    for (const p of r.preview) { // of a dry run
      console.log(`  ${enumToJson(PreviewActionSchema, p.action)} ${JSON.stringify(p.table)}: ${p.rows} rows, ${p.tables} tables`);
      for (const g of p.guards) {
        const guard = enumToJson(GuardKindSchema, g.guard);
        console.log(`  ${guard} refuses this for ${JSON.stringify(g.table)}: the number is ${g.number}, the limit is ${g.limit}`);
      }
    }
  } else if (isMessage(event, LogEntrySchema) && event.level !== LogLevel.INFO) {
    console.log(`${event.task}: ${enumToJson(LogLevelSchema, event.level)} ${JSON.stringify(event.message)}`);
  } else if (isMessage(event, RunFinishedSchema)) {
    console.log(`Run ${runId} ended: ${enumToJson(RunStateSchema, event.run!.state)}.`);
  }
}

async function main() {
  let run: Run | undefined;
  for await (const event of events(connect())) {
    show(event);
    if (isMessage(event.event.value, RunFinishedSchema)) run = event.event.value.run;
  }
  if (run!.reason === RefusalReason.GUARD) console.error("A guard refused it: look at a --dry-run, and --approve that.");
  if (run!.state !== RunState.SUCCEEDED) {
    throw new Error(`run ${run!.id} is ${enumToJson(RunStateSchema, run!.state)}: ${JSON.stringify(run!.error)}`);
  }
}

main().then(() => process.exit(0), (error) => {
  console.error(error instanceof ConnectError ? `${Code[error.code]}: ${JSON.stringify(error.rawMessage)}` : error.message);
  process.exit(1);
});
