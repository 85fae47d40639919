import { Client } from "../src/index.ts";
console.log(Client);
