// A service of Express, which takes a path for what its segments say as they were sent.
const express = require('express');

const app = express();
app.get('/ready', (_, response) => response.send('served'));
app.get('/v1/search/:q', (_, response) => response.set('x-handler', 'search').send('served'));
app.use('/v1/files', (_, response) => response.set('x-handler', 'files').send('served'));
app.get('/hosts', (request, response) => response.set('x-handler', request.hostname).send('served'));
app.listen(0, '127.0.0.1', function () {
  console.log(this.address().port);
});
