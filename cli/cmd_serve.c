/* SPDX-License-Identifier: MIT */
/* moeflux serve: the server's command line. */
#include "chat_text.h"
#include "commands.h"
#include "pulling.h"

#include "serve.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: moeflux serve MODEL [OPTION]...\n"
    "Answers clients of OpenAI's and Anthropic's APIs over HTTP, until SIGTERM or SIGINT: then\n"
    "requests under way are answered to their end.\n"
    "\n"
    "Listening:\n"
    "  --host ADDRESS         address to listen at (default: this machine alone, 127.0.0.1 and "
    "::1)\n"
    "  --port N               port (default 8080); 0: any, which is printed\n"
    "  --unix PATH            listen at a socket in the file system instead\n"
    "  --tls-cert FILE        speak TLS, with this certificate (PEM, its chain behind it)\n"
    "  --tls-key FILE         and its key\n"
    "  --api-key-file FILE    keys that clients have to send, one a line; needed where others can\n"
    "                         reach the address\n"
    "  --allow-host NAME      another name that this server is called by; may be repeated\n"
    "  --cors-origin ORIGIN   pages of this origin may ask; may be repeated\n"
    "  --connections N        connections open at once (default 1024)\n"
    "  --max-body SIZE        the largest request (default 32M)\n"
    "Answering:\n"
    "  --name NAME            what clients call the model (default: the path's last part)\n"
    "  --sessions N           answers in the making at once, and conversations kept (default 8)\n"
    "  --queue N              requests that may wait; more are told to come again (default 64)\n"
    "  --max-stall MS         while a prompt comes in, running answers may wait so long for each\n"
    "                         token: prompts go faster (default 0: some 2.6 times the usual)\n"
    "  --set NAME=JSON        a variable of the template for requests that do not set it, as in\n"
    "                         preserve_thinking=true; may be repeated\n"
    "  --no-think             requests that do not say get no thoughts\n"
    "  --think-budget N       after N tokens of thoughts they are ended, unless the request says\n"
    "                         how many it wants\n"
    "  --time-limit SECONDS   of a request (default: none)\n"
    "  --drain SECONDS        for requests under way when a signal comes (default 30)\n"
    "  --state-dir DIR        keep what was evaluated in DIR, for other runs\n"
    "  --state-dir-size SIZE  the most that DIR may hold (default 8G)\n" MF_PULLING_HELP
        MF_ENGINE_OPTIONS_HELP;

enum {
    OPT_HOST = MF_OPT_OWN,
    OPT_PORT,
    OPT_UNIX,
    OPT_TLS_CERT,
    OPT_TLS_KEY,
    OPT_KEYS,
    OPT_ALLOW_HOST,
    OPT_ORIGIN,
    OPT_CONNECTIONS,
    OPT_MAX_BODY,
    OPT_NAME,
    OPT_SESSIONS,
    OPT_QUEUE,
    OPT_MAX_STALL,
    OPT_SET,
    OPT_NO_THINK,
    OPT_THINK_BUDGET,
    OPT_TIME_LIMIT,
    OPT_DRAIN,
    OPT_STATE_DIR,
    OPT_STATE_DIR_SIZE,
    OPT_WHILE_PULLING
};

static const struct option long_options[] = {
    {"host", required_argument, NULL, OPT_HOST},
    {"port", required_argument, NULL, OPT_PORT},
    {"unix", required_argument, NULL, OPT_UNIX},
    {"tls-cert", required_argument, NULL, OPT_TLS_CERT},
    {"tls-key", required_argument, NULL, OPT_TLS_KEY},
    {"api-key-file", required_argument, NULL, OPT_KEYS},
    {"allow-host", required_argument, NULL, OPT_ALLOW_HOST},
    {"cors-origin", required_argument, NULL, OPT_ORIGIN},
    {"connections", required_argument, NULL, OPT_CONNECTIONS},
    {"max-body", required_argument, NULL, OPT_MAX_BODY},
    {"name", required_argument, NULL, OPT_NAME},
    {"sessions", required_argument, NULL, OPT_SESSIONS},
    {"queue", required_argument, NULL, OPT_QUEUE},
    {"max-stall", required_argument, NULL, OPT_MAX_STALL},
    {"set", required_argument, NULL, OPT_SET},
    {"no-think", no_argument, NULL, OPT_NO_THINK},
    {"think-budget", required_argument, NULL, OPT_THINK_BUDGET},
    {"time-limit", required_argument, NULL, OPT_TIME_LIMIT},
    {"drain", required_argument, NULL, OPT_DRAIN},
    {"state-dir", required_argument, NULL, OPT_STATE_DIR},
    {"state-dir-size", required_argument, NULL, OPT_STATE_DIR_SIZE},
    {"while-pulling", no_argument, NULL, OPT_WHILE_PULLING},
    MF_ENGINE_LONG_OPTIONS,
    {0}};

#define NO_PORT UINT32_MAX /* is given */

static const mf_cli_number numbers[] = {
    {OPT_PORT, "port", offsetof(mf_srv_config, port), 0, 65535},
    {OPT_CONNECTIONS, "connections", offsetof(mf_srv_config, n_connections), 4, 65536},
    {OPT_SESSIONS, "sessions", offsetof(mf_srv_config, n_sessions), 1, 200},
    {OPT_QUEUE, "queue", offsetof(mf_srv_config, n_waiting), 1, 100000},
    {OPT_MAX_STALL, "max-stall", offsetof(mf_srv_config, max_stall_ms), 0, 600000},
    {OPT_THINK_BUDGET, "think-budget", offsetof(mf_srv_config, think_budget), 1, 1u << 30},
    {OPT_TIME_LIMIT, "time-limit", offsetof(mf_srv_config, time_limit_s), 0, 1u << 30},
    {OPT_DRAIN, "drain", offsetof(mf_srv_config, drain_s), 0, 1u << 20},
};

/* What a Host header can have, less its port; an IPv6 address without brackets. */
static bool is_host(const char *text)
{
    struct in6_addr address;
    const size_t n = strcspn(text, ":/[]?#@ \t");
    return *text && (text[n] == '\0' || inet_pton(AF_INET6, text, &address) == 1);
}

/* What browsers send as Origin. */
static bool is_origin(const char *text)
{
    const char *place = strstr(text, "://");
    const size_t n = place ? strcspn(place + 3, "/?#@ \t") : 0;
    return strcmp(text, "null") == 0 || (n > 0 && place > text && place[3 + n] == '\0');
}

static int add_name(const mf_cli_parser *parser, const char *option, const char **names,
                    uint32_t *n_names)
{
    const bool of_hosts = strcmp(option, "allow-host") == 0;
    if (of_hosts && !is_host(optarg))
        return mf_cli_bad_value(parser, option, optarg, "a name alone, like models.example");
    if (!of_hosts && !is_origin(optarg))
        return mf_cli_bad_value(parser, option, optarg,
                                "an origin as browsers send it, like http://localhost:3000");
    if (*n_names == MF_SRV_MAX_NAMES)
        return mf_cli_usage_error(parser->command, "--%s: more than %d of them", option,
                                  MF_SRV_MAX_NAMES);
    names[(*n_names)++] = optarg;
    return MF_EXIT_OK;
}

typedef struct serve_args {
    mf_srv_config config; /* first: numbers are set by their place in it */
    mf_cli_pulling pulling;
    mf_cli_buffer variables; /* the beginning of a JSON object */
} serve_args;

static int own_option(void *args, const mf_cli_parser *parser, int option)
{
    mf_srv_config *c = &((serve_args *)args)->config;
    const mf_cli_text texts[] = {{OPT_HOST, &c->host},
                                 {OPT_UNIX, &c->socket_path},
                                 {OPT_TLS_CERT, &c->certificate_file},
                                 {OPT_TLS_KEY, &c->key_file},
                                 {OPT_KEYS, &c->api_key_file},
                                 {OPT_STATE_DIR, &c->state_dir},
                                 {0, NULL}};
    int exit_code = MF_EXIT_OK;
    if (mf_cli_take_text(texts, option))
        return MF_EXIT_OK;
    if (mf_cli_take_number(parser, numbers, sizeof numbers / sizeof *numbers, option, c,
                           &exit_code))
        return exit_code;
    switch (option) {
    case OPT_ALLOW_HOST:
        return add_name(parser, "allow-host", c->hosts, &c->n_hosts);
    case OPT_ORIGIN:
        return add_name(parser, "cors-origin", c->origins, &c->n_origins);
    case OPT_MAX_BODY:
        return mf_cli_take_size(parser, "max-body", &c->max_body_bytes);
    case OPT_NAME:
        c->name = optarg;
        return *optarg ? exit_code : mf_cli_bad_value(parser, "name", optarg, "a name");
    case OPT_SET:
        return mf_cli_add_variable(parser, optarg, &((serve_args *)args)->variables);
    case OPT_NO_THINK:
        c->thinking = MF_THINKING_OFF;
        break;
    case OPT_STATE_DIR_SIZE:
        return mf_cli_take_size(parser, "state-dir-size", &c->state_dir_bytes);
    case OPT_WHILE_PULLING:
        ((serve_args *)args)->pulling.is_wanted = true;
        break;
    }
    return exit_code;
}

static const char *contradiction(const serve_args *args)
{
    const mf_srv_config *c = &args->config;
    if (c->socket_path && (c->host || c->port != NO_PORT))
        return "--unix excludes --host and --port";
    if (!c->certificate_file != !c->key_file)
        return "--tls-cert and --tls-key need each other";
    if (args->pulling.is_wanted && c->state_dir)
        return "--while-pulling and --state-dir exclude each other";
    if (c->state_dir_bytes > 0 && !c->state_dir)
        return "--state-dir-size needs --state-dir";
    return NULL;
}

static int serve(int argc, char **argv, serve_args *args)
{
    mf_cli_engine_args engine;
    mf_cli_model_path path;
    *args = (serve_args){.config = {.port = NO_PORT,
                                    .n_connections = 1024,
                                    .max_body_bytes = (uint64_t)32 << 20,
                                    .n_sessions = 8,
                                    .n_waiting = 64,
                                    .drain_s = 30}};
    mf_srv_config *c = &args->config;
    int exit_code = MF_EXIT_OK;
    mf_error error = {0};
    mf_cli_engine_args_init(&engine);
    const mf_cli_parser parser = {"serve",      help,   argc, argv, ":" MF_ENGINE_SHORT_OPTIONS,
                                  long_options, &engine};
    if (!mf_cli_parse(&parser, own_option, args, &exit_code))
        return exit_code;
    const char *excluded = contradiction(args);
    if (excluded)
        return mf_cli_usage_error("serve", "serve: %s", excluded);
    exit_code = mf_cli_end_variables(&args->variables, &c->variables);
    if (exit_code != MF_EXIT_OK)
        return exit_code;
    c->port = c->port == NO_PORT ? 8080 : c->port;
    c->model = mf_cli_pulling_model(&parser, &args->pulling, &path, &exit_code);
    if (!c->model)
        return exit_code;
    if (path.is_hub_name && !c->name)
        c->name = path.given;
    c->engine = engine.options;
    c->engine.n_sessions = c->n_sessions;
    c->engine.hot_dir = c->state_dir;
    const bool is_served = mf_serve(c, &error);
    mf_cli_pulling_end(&args->pulling);
    return is_served ? mf_cli_finish(MF_EXIT_OK) : mf_cli_error("%s", error.message);
}

int mf_cmd_serve(int argc, char **argv)
{
    serve_args args;
    const int exit_code = serve(argc, argv, &args);
    mf_cli_buffer_free(&args.variables);
    return exit_code;
}
