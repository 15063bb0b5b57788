// Asks Tidegate whether each of four logins may go on. Without an answer in time they go on: it fails open.
const URL = process.env.TIDEGATE_URL ?? "http://127.0.0.1:8080";
const TOKEN = process.env.TIDEGATE_TOKEN ?? "";
const TIMEOUT = 1000 * (process.env.TIDEGATE_TIMEOUT ?? 1); // milliseconds, for connecting and the answer together
const PASSED_ON = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "ratelimit-policy", "retry-after"];

/** What the client gets: 200 to go on, or 429 or 503; and the headers of its response. */
async function check(attributes) {
  try {
    // `fetch` keeps connections open between calls, if each body is read.
    const answer = await fetch(`${URL}/v1/check`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${TOKEN}` },
      body: JSON.stringify({ attributes }),
      signal: AbortSignal.timeout(TIMEOUT),
    });
    const body = await answer.text();
    if (![200, 429, 503].includes(answer.status)) {
      // A mistake in this program or its token, and no decision.
      throw new Error(`${answer.status} ${body}`);
    }
    const headers = PASSED_ON.filter((name) => answer.headers.has(name)).map((name) => [name, answer.headers.get(name)]);
    return { status: answer.status, headers: Object.fromEntries(headers) };
  } catch (error) {
    console.error("no decision:", error.cause?.message ?? error.message);
    return { status: 200, headers: {} };
  }
}

for (let count = 0; count < 4; count++) {
  const { status, headers } = await check({ path: "/login", method: "POST", ip: "203.0.113.3" });
  const name = status === 200 ? "x-ratelimit-remaining" : "retry-after";
  console.log(status, name in headers ? `${name}: ${headers[name]}` : "");
}
