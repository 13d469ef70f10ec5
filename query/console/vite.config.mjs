// Files only, for the binary to embed: nothing inline, since the policy that goes with
// them forbids it, and names that carry a hash, since browsers keep them for good.
import { defineConfig } from "vite";

export default defineConfig({
  base: "/",
  build: {
    target: "es2022",
    outDir: "dist",
    emptyOutDir: true, // public/.keep comes back into it
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  // `npm run dev` beside a running `flyball serve`.
  server: { proxy: { "/api": "http://127.0.0.1:8080", "/readyz": "http://127.0.0.1:8080" } },
});
