# The image of muster: one static binary and no shell. Every container in examples runs it. make image writes its files
# into dist/image, with Go and without any other image, and then runs docker, podman or buildah. By hand it is
#
#   ./cli/release/release.sh image
#   docker build -t registry.example.com/muster:latest -f Dockerfile dist/image
#   docker run --rm registry.example.com/muster:latest version
#
# A worker also needs its own program. An image for it takes the binary from this one:
#
#   FROM python:3.13-slim
#   COPY --from=registry.example.com/muster:latest /usr/local/bin/muster /usr/local/bin/
#   COPY compute.py /
#   ENTRYPOINT ["muster"]
#   CMD ["worker", "--job=hello", "--root=/jobs", "--grace=25s", "--", "python3", "/compute.py"]

FROM scratch
COPY . /
ENV PATH=/usr/local/bin
USER 65534:65534
ENTRYPOINT ["muster"]
