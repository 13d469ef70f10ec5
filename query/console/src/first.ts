// What a page runs first. It asks the first question of the overview, so that the engine
// works on it while the browser reads the rest of the page.

import { askEarly } from "./api";
import { parseRoute, totalPath } from "./route";

const route = parseRoute(location.hash);
if (route.view === "overview") askEarly(totalPath(route.q));
const start = () => void import("./main");
if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
else start();
