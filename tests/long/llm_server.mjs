// A real model behind the Chat Completions API, for tests/long: node llm_server.mjs MODEL.gguf; prints its port, ends with stdin.
import {createServer} from "node:http";
import {getLlama, LlamaChat} from "node-llama-cpp";

const llama = await getLlama({gpu: false, build: "never", progressLogs: false});
const model = await llama.loadModel({modelPath: process.argv[2]});
const context = await model.createContext({contextSize: 2048, threads: 2});
const sequence = context.getSequence();
let queue = Promise.resolve(); // one sequence: one question at a time

const KNOWN = new Set(["model", "messages", "stream", "stream_options", "temperature", "max_tokens", "seed", "response_format"]);

function historyOf(messages) {
    return messages.map(({role, content}) => {
        if (typeof content !== "string") throw new Error("content must be a string");
        if (role === "assistant") return {type: "model", response: [content]};
        if (role === "user" || role === "system") return {type: role, text: content};
        throw new Error(`no template for role ${role}`);
    }).concat([{type: "model", response: []}]);
}

async function answer(body, response) {
    for (const key of Object.keys(body)) if (!KNOWN.has(key)) throw new Error(`unknown parameter: ${key}`);
    const history = historyOf(body.messages);
    const schema = body.response_format?.json_schema?.schema;
    const grammar = schema && await llama.createGrammarForJsonSchema(schema);
    const base = {id: `chatcmpl-${Date.now()}`, created: Math.floor(Date.now() / 1000), model: "smollm2-135m"};
    const write = (choices, more) => response.write(`data: ${JSON.stringify({...base, object: "chat.completion.chunk", choices, ...more})}\n\n`);
    if (body.stream) response.writeHead(200, {"content-type": "text/event-stream"});
    await sequence.clearHistory(); // else what is left of earlier questions decides the last digits of this one
    const before = sequence.tokenMeter.getState();
    const chat = new LlamaChat({contextSequence: sequence, autoDisposeSequence: false});
    const abort = new AbortController();
    response.on("close", () => abort.abort());
    const result = await chat.generateResponse(history, {
        grammar, temperature: body.temperature ?? 0, seed: body.seed, maxTokens: body.max_tokens ?? 256, signal: abort.signal,
        onTextChunk: (content) => body.stream && write([{index: 0, delta: {content}, finish_reason: null}]),
    }).finally(() => chat.dispose());
    const used = sequence.tokenMeter.diff(before);
    const usage = {prompt_tokens: used.usedInputTokens, completion_tokens: used.usedOutputTokens,
        total_tokens: used.usedInputTokens + used.usedOutputTokens};
    const finish_reason = result.metadata.stopReason === "maxTokens" ? "length" : "stop";
    if (body.stream) {
        write([{index: 0, delta: {}, finish_reason}]);
        if (body.stream_options?.include_usage) write([], {usage});
        response.end("data: [DONE]\n\n");
    } else {
        response.writeHead(200, {"content-type": "application/json"});
        const message = {role: "assistant", content: result.response};
        response.end(JSON.stringify({...base, object: "chat.completion", choices: [{index: 0, message, finish_reason}], usage}));
    }
}

const server = createServer(async (request, response) => {
    let text = "";
    for await (const piece of request) text += piece;
    queue = queue.then(() => answer(JSON.parse(text), response)).catch((error) => {
        if (!response.headersSent) response.writeHead(400, {"content-type": "application/json"});
        response.end(JSON.stringify({error: {message: String(error?.message ?? error)}}));
    });
});
server.listen(0, "127.0.0.1", () => console.log(JSON.stringify({port: server.address().port})));
process.stdin.on("end", () => process.exit(0)).resume();
