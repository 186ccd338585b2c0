"use strict";
// The charts make <style> elements. The page's policy allows only those with its nonce, so each gets it when it is made.
{
  const { nonce } = document.querySelector("style[nonce]");
  const create = Document.prototype.createElement;
  Document.prototype.createElement = function (name, ...options) {
    const created = create.call(this, name, ...options);
    if (created instanceof HTMLStyleElement) created.nonce = nonce;
    return created;
  };
}
