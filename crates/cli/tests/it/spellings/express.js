// A service of Express that says whom it takes the sender of a request for, in each of the usual ways. Prints its port, the
// public key of tokens and a token.
const crypto = require('node:crypto');
const basicAuth = require('basic-auth');
const cookieParser = require('cookie-parser');
const express = require('express');
const { expressjwt } = require('express-jwt');
const jsonwebtoken = require('jsonwebtoken');
const qs = require('qs');

const { publicKey, privateKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' });
const pem = publicKey.export({ type: 'spki', format: 'pem' });
const token = jsonwebtoken.sign({ sub: 'real-user' }, privateKey, { algorithm: 'ES256', expiresIn: '1h' });
// Tokens without a library, as many services read them.
const second = (value) => (value ?? '').split(' ')[1];
const passport = (value) => /(\S+)\s+(\S+)/.exec(value ?? '')?.[2];
const verified = (text) => {
  try {
    return jsonwebtoken.verify(text, pem, { algorithms: ['ES256'] }).sub;
  } catch {
    return undefined;
  }
};

const app = express();
app.use(cookieParser());
app.use(expressjwt({ secret: pem, algorithms: ['ES256'], credentialsRequired: false }));
app.use((error, request, response, next) => next());
app.use((request, response) => {
  const authorization = request.headers.authorization;
  const basic = basicAuth(request);
  const query = request.url.split('?').slice(1).join('?');
  const list = (value) => [value].flat(Infinity);
  let path = '';
  try {
    path = new URL(request.url, 'http://localhost').pathname;
  } catch {}
  response.json({
    key: [request.headers['x-api-key'], ...list(request.query.api_key), ...list(qs.parse(query).api_key)],
    session: [request.cookies.session],
    auth: [basic && `${basic.name}:${basic.pass}`, second(authorization), passport(authorization)],
    user: [request.auth?.sub, verified(second(authorization)), verified(passport(authorization))],
    path: [path, request.path],
  });
});
app.listen(0, '127.0.0.1', function () {
  console.log(JSON.stringify({ port: this.address().port, pem, token }));
});
