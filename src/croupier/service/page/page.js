import{Client as o}from"./croupier-client.js";console.log(o);
