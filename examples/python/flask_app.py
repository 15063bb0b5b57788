from flask import Flask
from tidegate.wsgi import RateLimitMiddleware

app = Flask(__name__)
app.wsgi_app = RateLimitMiddleware(app.wsgi_app, rules="rules.yaml")


@app.post("/login")
def login():
    return "welcome\n"
