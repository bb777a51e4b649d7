/* chat.h - `sluice chat`: talk to a server in the terminal. */
#ifndef SLUICE_CHAT_H
#define SLUICE_CHAT_H

int chat_main(int argc, char **argv);

#endif
