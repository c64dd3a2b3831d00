import { defineConfig } from "vitest/config";

export default defineConfig({
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    outDir: "../assets",
    emptyOutDir: true,
    target: "es2022",
    // The server's policy allows no data: URLs and no inline script.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  // `ratchet inspect` behind `npm run dev`: open the address that it prints once, for its cookie.
  server: { proxy: { "/api": { target: "http://127.0.0.1:8780", changeOrigin: true } } },
  test: { include: ["tests/**/*.test.{ts,tsx}"] },
});
