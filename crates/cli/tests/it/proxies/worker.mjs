// Serves the `fetch` of a worker on a port, as its platform does: node worker.mjs MODULE PORT SERVICE.
// The worker's own `fetch` of a request goes to SERVICE, and its settings are the variables of the process.
import { createServer } from "node:http";
import { Readable } from "node:stream";
import { pathToFileURL } from "node:url";

const [module, port, service] = process.argv.slice(2);
const worker = (await import(pathToFileURL(module))).default;
const OF_THE_CONNECTION = ["connection", "content-length", "host", "transfer-encoding", "cf-connecting-ip"];

createServer(async (incoming, outgoing) => {
  const headers = new Headers({ "cf-connecting-ip": incoming.socket.remoteAddress });
  for (let index = 0; index < incoming.rawHeaders.length; index += 2) {
    const [name, value] = incoming.rawHeaders.slice(index, index + 2);
    if (!OF_THE_CONNECTION.includes(name.toLowerCase())) headers.append(name, value);
  }
  const { method } = incoming;
  const body = ["GET", "HEAD"].includes(method) ? undefined : Readable.toWeb(incoming);
  const options = { method, headers, body, duplex: "half", redirect: "manual" };
  const request = new Request(new URL(incoming.url, service), options);
  const reply = await worker.fetch(request, process.env, { waitUntil: (task) => task });
  const bytes = Buffer.from(await reply.arrayBuffer());
  reply.headers.set("content-length", bytes.length);
  outgoing.writeHead(reply.status, [...reply.headers].flat());
  outgoing.end(bytes);
}).listen(Number(port), "127.0.0.1");
