// The WebAssembly, by the `imports` of the package: compiled where only that is allowed, else as base64.
declare module '#wasm' {
  const source: WebAssembly.Module | string
  export default source
}

// The script that decides in Redis, which is also that of the server, and its SHA-1.
declare module '#script' {
  const script: { readonly text: string; readonly sha1: string }
  export default script
}
