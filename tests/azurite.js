// Patches Azurite's conditional put: a name with only uncommitted blocks has no blob, so a put with If-None-Match: *
// succeeds. Azurite's reads, listings and conditional block lists already behave so, like Azure.
const Module = require("module");

const compile = Module.prototype._compile;
Module.prototype._compile = function (content, filename) {
  if (filename.endsWith("LokiBlobMetadataStore.js")) {
    const condition = /(ifNoneMatch === "\*" &&\s+blobDoc)\)/g;
    if (content.match(condition)?.length !== 1) {
      throw new Error("unexpected source of Azurite: adapt this patch");
    }
    content = content.replace(condition, "$1 && blobDoc.isCommitted)");
  }
  return compile.call(this, content, filename);
};
