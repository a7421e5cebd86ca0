# The sidecar image. Every step is plain, so that tests/docker can run the same steps without an
# engine.

# The digest is of 3.12.14 for all platforms; a newer one: docker buildx imagetools inspect python:3.12-slim
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea AS build
WORKDIR /src
COPY pyproject.toml constraints.txt ./
# The dependencies have a layer of their own, which a change of the source leaves as it is.
# As environment variables, the pins apply to the build backend too; newer versions of pip read the
# second name.
# The image itself needs no pip.
RUN python -m venv --without-pip /opt/tapeway && \
    python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
print(*project["dependencies"], *project["optional-dependencies"]["postgres"], sep="\n")' \
    > requirements.txt && \
    PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
    python -m pip --python /opt/tapeway/bin/python install --no-cache-dir \
    --disable-pip-version-check --quiet --requirement requirements.txt
COPY README.md LICENSE ./
COPY src src
RUN PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
    python -m pip --python /opt/tapeway/bin/python install --no-cache-dir \
    --disable-pip-version-check --quiet --no-deps .

FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
# A build adds where it comes from: --label org.opencontainers.image.revision=$(git rev-parse HEAD)
LABEL org.opencontainers.image.title="tapeway" \
    org.opencontainers.image.description="A record-and-replay proxy for HTTP and LLM APIs: change the base URL, record once, replay offline." \
    org.opencontainers.image.version="1.0.0rc1" \
    org.opencontainers.image.licenses="MIT" \
    org.opencontainers.image.vendor="tapeway contributors" \
    org.opencontainers.image.base.name="docker.io/library/python:3.12-slim"
# A fixed number, so that a folder mounted on /cassettes can be given to this user.
RUN groupadd --gid 10001 tapeway && \
    useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent tapeway && \
    install --directory --owner=10001 --group=10001 --mode=0700 /cassettes
COPY --from=build /opt/tapeway /opt/tapeway
COPY docker/healthcheck.py docker/defaults.toml /opt/tapeway/

# A tapeway.toml that is mounted here is read. It, variables and flags come before the defaults. To
# open the admin listener, set both TAPEWAY_ADMIN_LISTEN=0.0.0.0:8081 and TAPEWAY_ADMIN_TOKEN=…
WORKDIR /etc/tapeway
ENV PATH=/opt/tapeway/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TAPEWAY_DEFAULTS=/opt/tapeway/defaults.toml

USER 10001:10001
VOLUME ["/cassettes"]
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "/opt/tapeway/healthcheck.py"]
ENTRYPOINT ["tapeway"]
CMD ["serve"]
