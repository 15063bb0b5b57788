# Builds the program, and puts it alone into a small image.
#
#   docker build --tag tidegate .
#   docker run --publish 8080:8080 --volume tidegate-data:/var/lib/tidegate --env TIDEGATE_TOKEN tidegate

FROM rust:1.95-slim-trixie AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --package tidegate-cli

# The same Debian as above, so that the C library fits.
FROM debian:trixie-slim
RUN install --directory --owner 10001 --group 10001 --mode 0750 /var/lib/tidegate
COPY --from=build /src/target/dist/tidegate /usr/local/bin/tidegate

# Where envoyproxy/ratelimit has its program: started by this name, it runs in its place.
RUN ln --symbolic /usr/local/bin/tidegate /bin/ratelimit

# A container is reached from outside of it, so the server listens on all addresses here. Who is outside may check; to read and
# change rules, and to reset, takes a token: set TIDEGATE_TOKEN.
ENV TIDEGATE_HTTP=0.0.0.0:8080 \
    TIDEGATE_GRPC=0.0.0.0:8081 \
    TIDEGATE_DATA_DIR=/var/lib/tidegate

# By number, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /var/lib/tidegate
VOLUME /var/lib/tidegate
EXPOSE 8080 8081
ENTRYPOINT ["tidegate"]
CMD ["serve"]
