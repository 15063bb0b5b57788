// The WebAssembly, by the `imports` of the package: compiled where only that is allowed, else as base64.
declare module '#wasm' {
  const source: WebAssembly.Module | string
  export default source
}
