// node perfetto_query.js FOLDER TRACE SQL: the rows that Perfetto's trace processor finds in a trace, as JSON.
// FOLDER contains engine_bundle.js and its trace_processor.wasm, which Perfetto's page runs in a web worker. This script
// is that worker's browser. Both sides send TraceProcessorRpc messages (protobuf), each as field 1 of a stream.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');
const [folder, trace, sql] = process.argv.slice(2);

// Numbers of fields and methods in Perfetto's trace_processor.proto.
const METHOD = {APPEND: 1, FINALIZE: 2, QUERY: 3};
const RPC = {SEQUENCE: 1, REQUEST: 2, APPEND_DATA: 101, QUERY_ARGS: 103, APPEND_RESULT: 201, QUERY_RESULT: 203,
             FINALIZE_RESULT: 212};
const RESULT = {COLUMNS: 1, ERROR: 2, BATCH: 3};
const BATCH = {CELLS: 1, INTEGERS: 2, FLOATS: 3, STRINGS: 5};
const CELL = {INTEGER: 2, FLOAT: 3, STRING: 4};

// --- protobuf ---
function varint(value) {
  const bytes = [];
  for (value = BigInt(value); value > 127n; value >>= 7n) bytes.push(Number(value & 127n) | 128);
  return Buffer.from([...bytes, Number(value)]);
}

function field(number, value) {
  if (typeof value === 'number') return Buffer.concat([varint(number << 3), varint(value)]);
  return Buffer.concat([varint(number << 3 | 2), varint(value.length), value]);
}

class Reader {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  get done() { return this.at >= this.bytes.length; }
  varint() {
    let value = 0n, byte;
    for (let shift = 0n; ; shift += 7n) {
      byte = this.bytes[this.at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  }
  take(count) { this.at += count; return this.bytes.subarray(this.at - count, this.at); }
}

// All values of each field: BigInt or bytes.
function decode(bytes) {
  const fields = new Map();
  for (const reader = new Reader(bytes); !reader.done;) {
    const tag = Number(reader.varint()), kind = tag & 7;
    const value = kind === 0 ? reader.varint() : reader.take(kind === 2 ? Number(reader.varint()) : kind === 1 ? 8 : 4);
    fields.set(tag >> 3, [...(fields.get(tag >> 3) ?? []), value]);
  }
  return number => fields.get(number) ?? [];
}

function integers(values) {  // packed or not
  return values.flatMap(value => {
    if (typeof value === 'bigint') return [value];
    const all = [];
    for (const reader = new Reader(value); !reader.done;) all.push(BigInt.asIntN(64, reader.varint()));
    return all;
  });
}

function floats(values) {
  return values.flatMap(value => Array.from({length: value.length / 8}, (_, i) => value.readDoubleLE(8 * i)));
}

// --- the worker ---
function read(url) { return fs.readFileSync(path.join(folder, path.basename(String(url)))); }

class FileRequest {
  open(method, url) { this.url = url; }
  send() {
    const bytes = read(this.url);
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    this.status = 200;
  }
}

const silent = () => {};
const worker = {
  console: {log: silent, warn: silent, error: silent, debug: silent},
  TextDecoder, TextEncoder, URL, Response, performance, setTimeout, clearTimeout, queueMicrotask,
  crypto: globalThis.crypto, importScripts: silent, location: {href: 'http://localhost/engine_bundle.js'},
  WorkerGlobalScope: class {}, XMLHttpRequest: FileRequest,
  fetch: async url => new Response(read(url), {headers: {'Content-Type': 'application/wasm'}}),
};
worker.self = worker.globalThis = worker;
vm.createContext(worker);
// The bundle does not say when it is ready: some turns of the event loop after its program has been loaded.
const wasm = vm.runInContext('WebAssembly', worker);
const loaded = new Promise(resolve => {
  wasm.Instance = class extends wasm.Instance {
    constructor(...program) {
      super(...program);
      setTimeout(resolve, 100);
    }
  };
});
vm.runInContext(read('engine_bundle.js').toString(), worker);
const WorkerBytes = vm.runInContext('Uint8Array', worker);  // the bundle tests for the class of its own world

let sequence = 0;
const waiting = [];
const port = {
  postMessage(bytes) { for (const message of decode(Buffer.from(bytes))(1)) waiting.shift()?.(decode(message)); },
};

function call(method, ...fields) {
  return new Promise(resolve => {
    waiting.push(resolve);
    const message = Buffer.concat([field(RPC.SEQUENCE, sequence++), field(RPC.REQUEST, method), ...fields]);
    port.onmessage({data: WorkerBytes.from(field(1, message))});
  });
}

function check(result, what) {
  const error = result?.(what === 'query' ? RESULT.ERROR : what === 'append' ? 2 : 1)[0];
  if (error?.length) throw new Error(`${what}: ${error}`);
}

function rowsOf(result) {
  const columns = result(RESULT.COLUMNS).length, rows = [];
  for (const batch of result(RESULT.BATCH).map(decode)) {
    const whole = integers(batch(BATCH.INTEGERS)), real = floats(batch(BATCH.FLOATS));
    const texts = batch(BATCH.STRINGS).flatMap(bytes => String(bytes).split('\0'));
    const value = {[CELL.INTEGER]: () => Number(whole.shift()), [CELL.FLOAT]: () => real.shift(),
                   [CELL.STRING]: () => texts.shift()};
    const cells = batch(BATCH.CELLS).flatMap(bytes => [...bytes]).map(kind => value[kind]?.() ?? null);
    for (let i = 0; i < cells.length; i += columns) rows.push(cells.slice(i, i + columns));
  }
  return rows;
}

async function main() {
  worker.onmessage({data: port});
  await loaded;
  check(decode((await call(METHOD.APPEND, field(RPC.APPEND_DATA, fs.readFileSync(trace))))(RPC.APPEND_RESULT)[0]), 'append');
  const end = (await call(METHOD.FINALIZE))(RPC.FINALIZE_RESULT)[0];
  if (end) check(decode(end), 'finalize');
  const result = decode((await call(METHOD.QUERY, field(RPC.QUERY_ARGS, field(1, Buffer.from(sql)))))(RPC.QUERY_RESULT)[0]);
  check(result, 'query');
  console.log(JSON.stringify(rowsOf(result)));
}

main().then(() => process.exit(0), error => {
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
});
