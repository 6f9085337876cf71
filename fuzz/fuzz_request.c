/* SPDX-License-Identifier: MIT */
/*
 * A request's body from anywhere, to each endpoint that takes one: the first byte says to which, to
 * a model with a chat template or one without, and how the body is packed. It becomes a job whose
 * prompts are tokens of the model, an answer that is JSON, or a refusal that is JSON.
 */
#include "body.h"
#include "decode.h"
#include "http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BODY_BYTES ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static const char *const paths[] = {"/v1/completions",
                                    "/v1/chat/completions",
                                    "/v1/responses",
                                    "/v1/responses/input_tokens",
                                    "/v1/messages",
                                    "/tokenize",
                                    "/v1/messages/count_tokens",
                                    "/detokenize"};

/* In the place of the first, where the packing's number is 1. */
static const char *const more_paths[] = {"/v1/conversations",
                                         "/v1/conversations/conv_1",
                                         "/v1/conversations/conv_1/items",
                                         "/v1/responses",
                                         "/apply-template",
                                         "/v1/conversations/conv_2/items",
                                         "/v1/conversations",
                                         "/v1/conversations/conv_1/items"};

static mf_srv_config config = {.model = "models/demo", .max_body_bytes = MAX_BODY_BYTES};

static void link_file(const char *directory, const char *name, const char *to)
{
    char from[512], here[256];
    if (!getcwd(here, sizeof here))
        abort();
    snprintf(from, sizeof from, "%s/%s", here, to);
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (symlink(from, path) != 0)
        abort();
}

/* The demo's tokenizer; with a template beside it where one is given. */
static void open_model(mf_srv_model *m, const char *template)
{
    char directory[] = "/tmp/fuzz_request.XXXXXX", path[300];
    static const char *const names[] = {"tokenizer.json", "config.json", "chat_template.jinja"};
    if (!mkdtemp(directory))
        abort();
    link_file(directory, names[0], "models/demo/tokenizer.json");
    link_file(directory, names[1], "models/demo/config.json");
    if (template)
        link_file(directory, names[2], template);
    mf_error error = {0};
    if (mf_tokenizer_open(directory, NULL, &m->tokenizer, &error) != MF_OK) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(directory);
    m->path = config.model;
    snprintf(m->name, sizeof m->name, "demo");
    m->info.n_context_tokens = 2048;
    m->info.n_vocab = (uint32_t)mf_tokenizer_n_vocab(m->tokenizer);
    if (mf_srv_model_learn(m, &error) != MF_OK)
        abort();
    mf_sampler_options_default(&m->sampler);
    m->n_thought_max = SIZE_MAX;
    mf_srv_stored kept = {0};
    mf_srv_puts(&kept.items, "{\"role\":\"user\",\"content\":\"a\"}");
    mf_srv_puts(&kept.response, "{\"output\":[{\"id\":\"msg_1_0\",\"type\":\"message\",\"role\":"
                                "\"assistant\",\"content\":\"b\"}]}");
    mf_srv_responses_put(m->responses, "resp_1", 0, &kept);
}

/* [1] has a template. They live as long as the program. */
static mf_srv_server *servers(void)
{
    static mf_srv_server both[2];
    if (!both[0].model.tokenizer)
        for (int i = 0; i < 2; i++) {
            both[i].config = &config;
            pthread_mutex_init(&both[i].stats.lock, NULL);
            open_model(&both[i].model, i ? "tests/text/data/chat/qwen3.jinja" : NULL);
        }
    return both;
}

static void check_json(const mf_srv_bytes *bytes)
{
    yyjson_doc *document = yyjson_read(bytes->data, bytes->n_bytes, YYJSON_READ_NOFLAG);
    if (!document)
        abort();
    yyjson_doc_free(document);
}

/* Each event's data is JSON. */
static void check_events(const mf_srv_bytes *bytes)
{
    static const char data[] = "\ndata: ";
    const char *at = bytes->data;
    size_t n_events = 0;
    while ((at = strstr(at, data)) != NULL) {
        mf_srv_bytes one = {0};
        at += sizeof data - 1;
        mf_srv_put(&one, at, strcspn(at, "\n"));
        check_json(&one);
        mf_srv_bytes_free(&one);
        n_events++;
    }
    if (n_events == 0)
        abort();
}

static void check_job(const mf_srv_job *job)
{
    const uint32_t n_vocab = job->served->info.n_vocab;
    if (job->n_prompts == 0 || job->n_choices != job->n_prompts * job->params.n_choices ||
        job->n_choices > MF_SRV_MAX_CHOICES || !job->choices)
        abort();
    for (size_t i = 0; i < job->n_prompts; i++) {
        const mf_srv_prompt *p = &job->prompts[i];
        if (p->n_tokens == 0 || p->n_tokens > job->served->info.n_context_tokens)
            abort();
        for (size_t k = 0; k < p->n_tokens; k++)
            if (p->tokens[k] < 0 || (uint32_t)p->tokens[k] >= n_vocab)
                abort();
        for (size_t k = 0; k < p->n_marks; k++)
            if (p->marks[k] == 0 || p->marks[k] > p->n_tokens)
                abort();
    }
}

static void check_refusal(const mf_srv_refusal *refusal, mf_srv_shape shape)
{
    mf_srv_bytes out = {0};
    if (refusal->status < 400 || refusal->status > 503 || !*refusal->message)
        abort();
    mf_srv_put_refusal(&out, shape, refusal, "req_1");
    check_json(&out);
    mf_srv_bytes_free(&out);
}

/* One conversation, as it was at the beginning. */
static void reset_conversations(mf_srv_model *m)
{
    mf_srv_stored kept = {0};
    mf_srv_responses_free(&m->conversations);
    m->conversations = mf_srv_responses_new(MF_SRV_RESPONSE_BYTES);
    mf_srv_puts(&kept.items, "{\"id\":\"a\",\"role\":\"user\",\"content\":\"a\"}");
    mf_srv_puts(&kept.response, "{\"id\":\"conv_1\",\"created_at\":1}");
    mf_srv_responses_put(m->conversations, "conv_1", 0, &kept);
}

/* The body is taken over. */
static void ask(mf_srv_server *server, const char *path, const char *coding, mf_srv_bytes *body)
{
    mf_srv_request request = {.server = server};
    mf_srv_refusal refusal = {0};
    reset_conversations(&server->model);
    yyjson_doc *document = NULL;
    bool is_known = false, is_good = false;
    const mf_srv_route *route = mf_srv_find_route("POST", path, &is_known, &request.path);
    if (!route || !is_known)
        abort();
    if (mf_srv_decode(coding, body, MAX_BODY_BYTES, &refusal) &&
        (document = mf_srv_parse_body(body, &refusal)) != NULL) {
        request.body = body->data;
        request.n_body = body->n_bytes;
        request.json = yyjson_doc_get_root(document);
        is_good = route->handler(&request, &refusal);
    }
    if (!is_good)
        check_refusal(&refusal, mf_srv_shape_at(path));
    else if (request.job)
        check_job(request.job);
    else if (request.content_type) /* a stream that has failed already */
        check_events(&request.answer);
    else
        check_json(&request.answer);
    mf_srv_job_drop(request.job);
    mf_srv_bytes_free(&request.answer);
    yyjson_doc_free(document);
    mf_srv_bytes_free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char *const codings[] = {NULL, NULL, "gzip", "zstd"};
    const size_t n_paths = sizeof paths / sizeof *paths;
    mf_srv_bytes body = {0};
    if (n_bytes == 0)
        return 0;
    const unsigned how = data[0];
    mf_srv_put(&body, (const char *)data + 1, n_bytes - 1);
    const unsigned packing = how / (2 * n_paths) % 4;
    ask(&servers()[how / n_paths % 2], (packing == 1 ? more_paths : paths)[how % n_paths],
        codings[packing], &body);
    return 0;
}
