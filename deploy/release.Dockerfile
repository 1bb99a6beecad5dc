# The image of a release, with the program that make release-snapshot has built; Dockerfile builds it itself.
# docker buildx build --platform linux/amd64,linux/arm64 -f deploy/release.Dockerfile -t cleanupd dist
FROM golang:1.26.8-bookworm AS certificates

FROM scratch
ARG TARGETPLATFORM
COPY --from=certificates /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY $TARGETPLATFORM/cleanupd /cleanupd
USER 65532:65532
ENV CLEANUPD_GRPC_LISTEN=0.0.0.0:9090 CLEANUPD_HTTP_LISTEN=0.0.0.0:8080
EXPOSE 9090 8080
ENTRYPOINT ["/cleanupd"]
CMD ["serve"]
