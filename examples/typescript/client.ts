// A client of the REST API, with types that are generated from its OpenAPI description: it lists the tasks, changes an option and resets
// it, and streams a dry run. Its argument is the address of a server. The exit status is 0 only if the run succeeded.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Line = { result?: components["schemas"]["v1RunCleanupResponse"]; error?: components["schemas"]["rpcStatus"] };

const client = createClient<paths>({ baseUrl: process.argv[2] ?? "http://127.0.0.1:8080" });

function must<T>(answer: { data?: T; error?: unknown }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

// lines yields the objects of a stream, one a line.
async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<Line> {
  let rest = "";
  const decoder = new TextDecoder();
  for await (const chunk of body) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) yield JSON.parse(part) as Line;
  }
}

const { tasks } = must(await client.GET("/v1/tasks"));
console.log(`${tasks?.length} tasks`);

const changed = must(await client.PATCH("/v1/options", { body: { visitorPurgeDelayDays: 60 } }));
const reset = must(await client.PATCH("/v1/options", { body: { visitorPurgeDelayDays: null } }));
console.log(`visitors: ${changed.options?.visitorPurgeDelayDays} days, and again ${reset.options?.visitorPurgeDelayDays}`);

// The request id lets the request be repeated until an answer comes, and starts one run.
const body = { dryRun: true, requestId: crypto.randomUUID() };
async function start(): Promise<ReadableStream<Uint8Array>> {
  for (let tries = 60; ; tries--) {
    const answer = await client.POST("/v1/runs", { body, parseAs: "stream" }).catch((error: unknown) => ({ error, response: undefined }));
    const lost = !answer.response || answer.response.status === 503;
    if (!lost || tries === 0) return must(answer as { data?: ReadableStream<Uint8Array>; error?: unknown });
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

let state: string | undefined; // stays undefined if the stream ends early
for await (const line of lines(await start())) {
  if (line.error) console.error(line.error.message);
  const finished = line.result?.event?.taskFinished?.result;
  if (finished) console.log(`${finished.task}: ${finished.rowsDeleted} rows would be deleted`);
  state = line.result?.event?.runFinished?.run?.state ?? state;
}
console.log(`the run is ${state}`);
process.exitCode = state === "RUN_STATE_SUCCEEDED" ? 0 : 1;
