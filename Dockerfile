# The HTTP service with a CPU build of torch, its index built in, as an ordinary user, running nobody's code:
#
#   docker build -t fsdp-mcp .
#   docker run --rm --read-only --tmpfs /tmp -p 8000:8000 -e FSDP_MCP_TOKEN=... fsdp-mcp
#
# Arguments after the image name replace the last line: `serve` alone speaks MCP over stdin and stdout (docker run -i),
# `serve --transport http --host 0.0.0.0 --allowed-host mcp.example.com` answers under a name of yours.
# With --allow-run, callers run code inside the container: then add --init and limits of memory and processes.
ARG PYTHON_IMAGE=docker.io/library/python:3.11-slim

# ---- what we depend on: the large layer, made anew only when a pin changes ----
FROM ${PYTHON_IMAGE} AS dependencies
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG TORCH_VERSION=2.13.0
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python -m venv --without-pip /opt/venv
COPY constraints.txt .
RUN pip --python /opt/venv/bin/python install ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} \
        -c constraints.txt "torch==${TORCH_VERSION}" numpy \
    # Headers and the C++ tests of torch, 200 MB: headers serve compilers, and the image has none.
    && cd /opt/venv/lib/python3*/site-packages/torch && rm -rf include test \
    && find bin -type f ! -name torch_shm_manager -delete
COPY pyproject.toml .
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
        > requirements.txt \
    && pip --python /opt/venv/bin/python install -c constraints.txt -r requirements.txt

# ---- the package itself ----
FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY docs_corpus docs_corpus
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

# ---- what is shipped ----
FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="fsdp-mcp" \
      org.opencontainers.image.description="An MCP server expert in PyTorch FSDP and torch.distributed" \
      org.opencontainers.image.licenses="MIT"
RUN useradd --system --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin fsdp
COPY --from=dependencies /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH \
    VIRTUAL_ENV=/opt/venv \
    FSDP_MCP_CACHE_DIR=/opt/fsdp-mcp/cache
COPY --from=wheel /dist /opt/fsdp-mcp/dist
# The index belongs to root and is only read, so the container's root may be read-only.
RUN pip --python /opt/venv/bin/python install --no-cache-dir --no-deps --no-index /opt/fsdp-mcp/dist/*.whl \
    && fsdp-mcp index
USER fsdp
WORKDIR /srv
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=15s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["fsdp-mcp"]
CMD ["serve", "--transport", "http", "--host", "0.0.0.0", "--port", "8000"]
