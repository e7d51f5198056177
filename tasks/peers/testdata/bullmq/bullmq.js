// BullMQ as a side of the comparison in package peers: "submit N" puts N tasks into the queue, "work C" runs C at once.
import { once } from "node:events";
import { Queue, Worker } from "bullmq";

const [host, port] = process.env.PEERS_REDIS.split(":");
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const [, , what, number] = process.argv;
const page = 1000;

async function submit(count) {
  const queue = new Queue("peers", { connection });
  for (let start = 0; start < count; start += page) {
    const tasks = [];
    for (let i = start; i < Math.min(start + page, count); i++) {
      tasks.push({ name: "t", data: String(i).padStart(64, "0") });
    }
    await queue.addBulk(tasks);
  }
  console.log("ready");
  await queue.close();
}

async function work(concurrency) {
  const worker = new Worker("peers", async () => "resulted", { connection, concurrency, autorun: false });
  worker.on("error", (error) => console.error(error));
  await worker.waitUntilReady();
  console.log("ready");
  await once(process.stdin, "data"); // the start
  worker.run();
}

await (what === "submit" ? submit : work)(Number(number));
