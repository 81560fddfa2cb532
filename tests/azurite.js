// Azurite, with a conditional put that agrees with the rest of it: at a name that has nothing but blocks which no list has
// named, nothing exists. It is so in Azurite's reads, listings and conditional lists of blocks, but not in its puts.
const Module = require("module");

const compile = Module.prototype._compile;
Module.prototype._compile = function (content, filename) {
  if (filename.endsWith("LokiBlobMetadataStore.js")) {
    const condition = /(ifNoneMatch === "\*" &&\s+blobDoc)\)/g;
    if (content.match(condition)?.length !== 1) {
      throw new Error("Azurite is not the one that this file knows");
    }
    content = content.replace(condition, "$1 && blobDoc.isCommitted)");
  }
  return compile.call(this, content, filename);
};
