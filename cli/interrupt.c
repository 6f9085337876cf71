/* SPDX-License-Identifier: MIT */
/* The program's one mutable global: a signal handler has no other place to leave its mark. */
#include "interrupt.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

void mf_cli_interrupt_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt; /* no SA_RESTART: a read at the chat's prompt has to end */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool mf_cli_interrupted(void)
{
    return interrupted != 0;
}

void mf_cli_interrupt_clear(void)
{
    interrupted = 0;
}

static int on_progress(void *user, uint64_t n_done, uint64_t n_total)
{
    (void)user, (void)n_done, (void)n_total;
    return mf_cli_interrupted();
}

void mf_cli_interrupt_session(mf_session *session)
{
    mf_cli_interrupt_install();
    mf_session_set_progress(session, on_progress, NULL);
}
