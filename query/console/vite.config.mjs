// Files only, for the binary to embed: nothing inline, since the policy that goes with
// them forbids it, and names that carry a hash, since browsers keep them for good.
import { readFileSync } from "node:fs";
import { defineConfig } from "vite";

// The licences of what is built in have to come with it.
const licences = {
  name: "licences",
  generateBundle() {
    const names = Object.keys(JSON.parse(readFileSync("package.json", "utf8")).dependencies);
    const source = names.map((n) => `${n}\n\n${readFileSync(`node_modules/${n}/LICENSE`, "utf8")}`).join("\n\n");
    this.emitFile({ type: "asset", fileName: "licences.txt", source });
  },
};

// The views are fetched beside the script that runs first and asks the first question,
// not after it.
const early = {
  name: "early",
  transformIndexHtml: {
    order: "post",
    handler(html, { bundle }) {
      if (!bundle) return; // of `npm run dev`
      const main = Object.values(bundle).find((c) => c.type === "chunk" && c.facadeModuleId?.endsWith("/src/main.tsx"));
      return [{ tag: "link", attrs: { rel: "modulepreload", crossorigin: true, href: "/" + main.fileName }, injectTo: "head" }];
    },
  },
};

export default defineConfig({
  base: "/",
  plugins: [licences, early],
  build: {
    target: "es2022",
    outDir: "dist",
    emptyOutDir: true, // public/.keep comes back into it
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  // `npm run dev` beside a running `flyball serve`.
  server: { proxy: { "/api": "http://127.0.0.1:8080", "/readyz": "http://127.0.0.1:8080" } },
});
