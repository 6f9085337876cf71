/* SPDX-License-Identifier: MIT */
/* Ctrl-C as a flag that the generation loop and the progress callback look at. */
#ifndef MF_CLI_INTERRUPT_H
#define MF_CLI_INTERRUPT_H

#include <moeflux/moeflux.h>

#include <stdbool.h>

/* From here on SIGINT only sets the flag, and interrupts a waiting read. */
void mf_cli_interrupt_install(void);
bool mf_cli_interrupted(void);
void mf_cli_interrupt_clear(void);
/* The same, and the flag ends what the session evaluates (MF_ERR_CANCELLED), so that the program
 * can finish what it has to. */
void mf_cli_interrupt_session(mf_session *session);

#endif
