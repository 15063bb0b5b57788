from fastapi import FastAPI
from tidegate.asgi import RateLimitMiddleware

app = FastAPI()
app.add_middleware(RateLimitMiddleware, rules="rules.yaml")


@app.post("/login")
async def login():
    return "welcome"
