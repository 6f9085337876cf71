/* SPDX-License-Identifier: MIT */
/* Ctrl-C as a flag that the generation loop and the progress callback look at. */
#ifndef MF_CLI_INTERRUPT_H
#define MF_CLI_INTERRUPT_H

#include <stdbool.h>

/* From here on SIGINT only sets the flag, and interrupts a waiting read. */
void mf_cli_interrupt_install(void);
bool mf_cli_interrupted(void);
void mf_cli_interrupt_clear(void);

#endif
