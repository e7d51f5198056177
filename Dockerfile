# The image of muster: one static binary and no shell. Every container in examples runs it.
#
#   docker build -t registry.example.com/muster:latest .
#   docker run --rm registry.example.com/muster:latest version
#
# A worker also needs its own program. An image for it takes the binary from this one:
#
#   FROM python:3.13-slim
#   COPY --from=registry.example.com/muster:latest /usr/local/bin/muster /usr/local/bin/
#   COPY compute.py /
#   ENTRYPOINT ["muster"]
#   CMD ["worker", "--job=hello", "--root=/jobs", "--grace=25s", "--", "python3", "/compute.py"]

FROM docker.io/library/golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /image/usr/local/bin/muster .
# A worker keeps its socket in /tmp. The certificates are for servers whose CA is not named.
RUN mkdir -p -m 1777 /image/tmp && \
    mkdir -p /image/etc/ssl/certs && \
    cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ && \
    echo 'muster:x:65534:65534:muster:/:' >/image/etc/passwd

FROM scratch
COPY --from=build /image /
ENV PATH=/usr/local/bin
USER 65534:65534
ENTRYPOINT ["muster"]
